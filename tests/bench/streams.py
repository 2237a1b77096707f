"""The stream host as a process of its own, and a fleet file over it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

REPOSITORY = Path(__file__).resolve().parents[2]

HOST = """  h{n:02}:
    address: 127.0.0.1
    port: {port}
    user: h{n:02}
    identity: {identity}
    services:
      sglang:
        unit: bench.service
        port: 30000
        gpus: [0]
        profile: bench
"""


class Streams:
    """`with Streams(folder, hosts, rate) as s`: s.env is the environment for the console, s.fleet its fleet file."""

    def __init__(self, folder: Path, hosts: int, rate: float = 0.0) -> None:
        self.folder, self.hosts, self.rate = folder, hosts, rate
        self.fleet = folder / "fleet" / "fleet.yaml"
        self.env = {
            **os.environ,
            "HOME": str(folder / "home"),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "PYTHONPATH": str(REPOSITORY / "console"),
        }
        self.env.pop("SSH_AUTH_SOCK", None)
        # an installed console has its bytecode on disk
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)

    def __enter__(self) -> Streams:
        argv = [sys.executable, "-m", "tests.bench.stream_host", str(self.folder), "--lines-per-second", str(self.rate)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY)
        if self.process.stdout is None or self.process.stdin is None:
            raise RuntimeError("no pipes")
        port = json.loads(self.process.stdout.readline())["port"]
        home = self.folder / "home" / ".ssh"
        home.mkdir(parents=True, exist_ok=True)
        (home / "known_hosts").write_text((self.folder / "known_hosts").read_text())
        self.fleet.parent.mkdir(parents=True, exist_ok=True)
        identity = self.folder / "id"
        hosts = "".join(HOST.format(n=n, port=port, identity=identity) for n in range(1, self.hosts + 1))
        self.fleet.write_text("hosts:\n" + hosts)
        (self.fleet.parent / "bench.yaml").write_text("engine: sglang\nmodel: /models/bench\n")
        return self

    def go(self) -> None:
        """Starts the journal lines."""
        (self.folder / "go").touch()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
