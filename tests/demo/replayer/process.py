"""A replayer as the tests drive it: the real process, its real log, its real port."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ddtree_console.demo

FOLDER = Path(ddtree_console.demo.__file__).parent
CONDITIONS = FOLDER / "conditions.yaml"
PATIENCE = 20.0
# plenty on an idle machine, and a busy one only makes a test slower
SPEED = 400.0


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Replayer:
    """`python3 replayer.py ARGS` with its output in a pipe."""

    def __init__(
        self, *args: str, port: int | None = None, env: dict[str, str] | None = None, script: Path | None = None
    ) -> None:
        self.port = port or free_port()
        self.lines: list[bytes] = []
        plain = {k: v for k, v in os.environ.items() if k != "TQDM_BAR_FORMAT"}
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(script or FOLDER / "replayer.py"), *args, "--port", str(self.port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**plain, **(env or {})},
        )

    def __enter__(self) -> Replayer:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def until(self, words: bytes) -> bytes:
        """Reads the log up to a line with these words; AssertionError when it ends before."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if words in line:
                return line
        raise AssertionError(f"{words!r} never came; last: {self.lines[-3:]!r}")

    def finish(self) -> tuple[int, list[bytes]]:
        """(exit status, every line) of a run that ends by itself."""
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)
        return self.process.wait(PATIENCE), self.lines

    def ask(self, path: str, body: Any = None, key: str = "", timeout: float = PATIENCE) -> tuple[int, Any]:
        """(status, JSON or text) of one request; OSError when the port refuses or nothing answers in time."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            connection.request(
                "GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers
            )
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        return answer.status, json.loads(text) if text[:1] in ("{", "[") else text

    def refused(self) -> bool:
        """Whether nobody listens on the port."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) != 0

    def wait_for(self, path: str, status: int) -> None:
        """Asks until that status is answered."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if self.ask(path)[0] == status:
                    return
            except OSError:
                pass
            time.sleep(0.01)  # nothing but asking again tells when a server starts to listen
        raise AssertionError(f"{path} never answered {status}")
