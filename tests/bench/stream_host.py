"""A synthetic host for benchmarks: an SSH server on loopback that speaks docs/PROTOCOL.md and streams made-up readings.

Not a sandbox: nothing runs behind it, so that what is measured is the console alone. Every user name is a host.

    python -m tests.bench.stream_host FOLDER --lines-per-second 0     prints one JSON line {"port": N}, ends with stdin
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import asyncssh

GIB = 1 << 30
BATCH_S = 0.05


def entry(unit: str, n: int, now: float) -> bytes:
    """One journal line as journalctl prints it: a Decode batch line of about 200 bytes."""
    text = (
        f"[2026-11-29 14:25:01] Decode batch, #running-req: 1, #token: {n % 4096}, token usage: 0.00, "
        "accept len: 1.00, accept rate: 0.00, cuda graph: True, "
        f"gen throughput (token/s): 171.13, #queue-req: 0 line {n}"
    )
    raw = {
        "__CURSOR": f"s=bench;i={n:x};b=0;m={n:x};t=0;x=0",
        "__REALTIME_TIMESTAMP": str(int(now * 1e6)),
        "_SYSTEMD_UNIT": unit,
        "_SYSTEMD_INVOCATION_ID": "0" * 31 + "1",
        "PRIORITY": "6",
        "SYSLOG_IDENTIFIER": "python3",
        "_PID": "4242",
        "MESSAGE": text,
    }
    return json.dumps(raw, separators=(",", ":")).encode() + b"\n"


def unit_state() -> dict[str, Any]:
    """A unit that runs."""
    return {
        "load": "loaded",
        "active": "active",
        "sub": "running",
        "result": "success",
        "restarts": 0,
        "invocation": "0" * 31 + "1",
        "main_pid": 4242,
        "since": 1795962301.0,
        "fragment": "/etc/systemd/system/bench.service",
        "enabled": "enabled",
    }


def gpus(tick: int) -> dict[str, Any]:
    """Two devices whose readings move with each tick."""
    each = [
        {
            "index": i,
            "name": "Synthetic",
            "uuid": f"GPU-{i}",
            "total": 80 * GIB,
            "used": (40 + tick % 3) * GIB,
            "free": (40 - tick % 3) * GIB,
            "util": (tick * 7) % 100,
            "temp": 50 + tick % 9,
            "power": 200.0 + tick % 50,
            "power_limit": 700.0,
            "processes": [],
            "missing": {},
        }
        for i in range(2)
    ]
    return {"kind": "gpus", "source": "nvml", "driver": "bench", "gpus": each}


async def until_end(stdin: asyncssh.SSHReader[bytes]) -> None:
    """Reads until the console closes it, or its connection goes."""
    with contextlib.suppress(OSError, asyncssh.Error):
        await stdin.read()


class Bench:
    """Answers of every host. rate: journal lines a second and host, from the moment the file `go` exists."""

    def __init__(self, rate: float, go: Path) -> None:
        self.rate, self.go = rate, go

    async def serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """One exec request: the last word that is a command of the host code decides."""
        words = (process.command or "").split()
        command = next((w for w in reversed(words) if w in ("hello", "watch", "journal", "read", "events")), "")
        with contextlib.suppress(BrokenPipeError, ConnectionError, asyncssh.Error):
            if command == "hello":
                process.stdout.write(self._line(self._hello()))
            elif command == "watch":
                await self._watch(process)
            elif command == "journal":
                await self._journal(process)
            elif command:
                process.stdout.write(self._line({"ok": False, "code": 7, "cause": "a bench host", "next": "none"}))
        process.exit(0)

    @staticmethod
    def _line(raw: dict[str, Any]) -> bytes:
        return json.dumps(raw, separators=(",", ":")).encode() + b"\n"

    @staticmethod
    def _hello() -> dict[str, Any]:
        return {"v": 1, "hash": "bench", "python": "3.11.2", "uid": 0, "user": "root", "boot": "b" * 32} | {
            "systemd": "252",
            "where": "/var/lib/ddtree-console/bin/bench",
        }

    async def _watch(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        config = json.loads(await process.stdin.readline())
        slots = config["services"]
        out = process.stdout
        out.write(self._line({"kind": "hello", "privileged": True, **self._hello()}))
        out.write(self._line({"kind": "units", "units": {s["unit"]: unit_state() for s in slots}}))
        ours = {"state": "ours", "address": "127.0.0.1", "pid": 4242, "command": "python3"}
        out.write(self._line({"kind": "ports", "ports": {s["service"]: ours for s in slots}}))
        out.write(self._line({"kind": "locks", "locks": {s["unit"]: None for s in slots}}))
        kept = {"committed": "r1", "profile": "bench", "known_good": "r1"}
        out.write(self._line({"kind": "releases", "releases": {s["unit"]: kept for s in slots}}))
        ended = asyncio.ensure_future(until_end(process.stdin))
        tick = 0
        while not ended.done():
            out.write(self._line(gpus(tick)))
            tick += 1
            await asyncio.wait([ended], timeout=2.0)

    async def _journal(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        unit = json.loads(await process.stdin.readline())["units"][0]
        ended = asyncio.ensure_future(until_end(process.stdin))
        sent, begun = 0, 0.0
        while not ended.done():
            await asyncio.wait([ended], timeout=BATCH_S)
            if self.rate and not begun and self.go.exists():
                begun = time.monotonic()
            due = int((time.monotonic() - begun) * self.rate) if begun else 0
            # never a burst of more than half a second: a reader that lags must not be buried
            due = min(due, sent + int(self.rate / 2))
            now = time.time()
            if due > sent:
                process.stdout.write(b"".join(entry(unit, n, now) for n in range(sent, due)))
                sent = due
                await process.stdout.drain()


class AnyUser(asyncssh.SSHServer):
    """Every user with the bench's key."""

    def begin_auth(self, username: str) -> bool:
        """Key required."""
        return True

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        """No forwarding: the console then asks the watcher, which has no HTTP either."""
        return False


async def main(folder: Path, rate: float) -> None:
    """Serves until stdin ends. The folder gets id, known_hosts; `go` in it starts the lines."""
    folder.mkdir(parents=True, exist_ok=True)
    key, client = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    client.write_private_key(str(folder / "id"))
    (folder / "id").chmod(0o600)
    bench = Bench(rate, folder / "go")
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=AnyUser,
        server_host_keys=[key],
        authorized_client_keys=asyncssh.import_authorized_keys(client.export_public_key().decode()),
        process_factory=bench.serve,
        encoding=None,
    )
    port = server.get_port()
    public = key.export_public_key().decode().strip()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {public}\n")
    print(json.dumps({"port": port}), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lines-per-second", type=float, default=0.0)
    given = parser.parse_args()
    asyncio.run(main(given.folder, given.lines_per_second))
