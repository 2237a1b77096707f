"""SGLang servers of a GPU run: launched, asked, kept as recordings (NAME.log with seconds, NAME.json). Stdlib only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Ended(Exception):
    """A server ended, or did not become ready; the text holds its last lines."""


def ask(port: int, path: str, body: Mapping[str, Any] | None = None, timeout: float = 30.0) -> tuple[int | None, str]:
    """(status, text); status None with the error where there is no answer."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode("utf-8", "replace")
    except OSError as error:
        return None, repr(error)[:200]


class Server:
    """One SGLang on a port. flags: after the common ones. env: beside this process's own."""

    def __init__(
        self, name: str, out: Path, port: int, models: Path, flags: Sequence[str], env: Mapping[str, str] = {}
    ) -> None:
        self.name, self.out, self.port, self.flags = name, out, port, list(flags)
        self.record: dict[str, Any] = {"name": name, "args": self.flags, "env": dict(env), "ready": None}
        argv = [
            sys.executable, "-u", "-m", "sglang.launch_server", "--model-path", str(models / "target"),
            "--skip-tokenizer-init", "--host", "127.0.0.1", "--port", str(port), *flags,
        ]  # fmt: skip
        out.mkdir(parents=True, exist_ok=True)
        self._log = (out / f"{name}.log").open("wb")
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
        )
        self._pump = threading.Thread(target=self._copy, daemon=True)
        self._pump.start()

    def _copy(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._log.write(b"%8.3f " % (time.monotonic() - self._began) + line)
            self._log.flush()

    @property
    def log(self) -> str:
        """What it has written so far."""
        return (self.out / f"{self.name}.log").read_text("utf-8", "replace")

    def ended(self) -> int | None:
        """Its exit status, None while it runs."""
        return self._process.poll()

    def ready(self, seconds: float) -> None:
        """Waits until it generates; Ended with its last lines otherwise."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.ended() is None:
            if ask(self.port, "/health", timeout=3)[0] == 200:
                self.record["ready"] = round(time.monotonic() - self._began, 2)
                return
            time.sleep(0.5)
        tail = "\n".join(self.log.splitlines()[-12:])
        raise Ended(f"{self.name} did not become ready (exit {self.ended()}):\n{tail}")

    def generate(self, ids: Sequence[int], **sampling: Any) -> dict[str, Any]:
        """One /generate answer; Ended where it is none. Keys with a leading underscore go beside sampling_params."""
        beside = {k[1:]: sampling.pop(k) for k in list(sampling) if k.startswith("_")}
        body = {"input_ids": list(ids), "sampling_params": {"temperature": 0, "ignore_eos": True, **sampling}, **beside}
        status, text = ask(self.port, "/generate", body, 120)
        if status != 200:
            raise Ended(f"{self.name}: /generate answered {status}: {text[:300]}")
        return dict(json.loads(text))

    def json(self, path: str) -> dict[str, Any]:
        """A JSON answer; {} where there is none."""
        status, text = ask(self.port, path)
        return dict(json.loads(text)) if status == 200 else {}

    def section(self) -> dict[str, Any]:
        """The `ddtree` section of its server info, {} without."""
        states = self.json("/server_info").get("internal_states") or [{}]
        return dict(states[0].get("ddtree") or {})

    def stop(self) -> None:
        """Keeps its last answers, ends it and all its children, writes the recording."""
        if self.ended() is None:
            paths = ("/server_info", "/model_info", "/v1/models", "/metrics", "/health")
            self.record["responses"] = {path: ask(self.port, path) for path in paths}
        for how, wait in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
            try:
                os.killpg(self._process.pid, how)
            except ProcessLookupError:
                break
            try:
                self._process.wait(wait)
            except subprocess.TimeoutExpired:
                continue
        self._process.wait()
        self._pump.join(5)
        self._log.close()
        self.record["exit"] = self._process.returncode
        (self.out / f"{self.name}.json").write_text(json.dumps(self.record, indent=1))
