"""A host that speaks the protocol in this process: scripted answers, a watcher and a journal fed by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from ddtree_console.domain.spec import Fleet, Host, Profile, Service
from ddtree_console.transport.base import Completed, TransportError

HELLO = {
    "kind": "hello",
    "v": 1,
    "hash": "0123456789abcdef",
    "python": "3.11.2",
    "uid": 0,
    "user": "root",
    "boot": "boot-1",
    "systemd": "252",
    "where": "/var/lib/ddtree-console/bin/0123456789abcdef",
    "privileged": True,
}

Answer = Callable[[dict[str, Any]], Sequence[Mapping[str, Any]]]
ASKED_FIRST = ("check", "inspect", "model")


def _nothing(payload: dict[str, Any]) -> Sequence[Mapping[str, Any]]:
    """A host that has no such word to say; the call is not recorded."""
    return []


def fleet(profiles: Mapping[str, Profile] | None = None, **service: Any) -> Fleet:
    """One host `h1` with the service `s1`, unit s1.service on port 30000."""
    values: dict[str, Any] = {"host": "h1", "name": "s1", "unit": "s1.service", "port": 30000, "gpus": (0,), **service}
    known = profiles or {"p1": Profile(name="p1", engine="generic", command=("/bin/server",))}
    values.setdefault("profile", next(iter(known)))
    return Fleet("fleet.yaml", (Host("h1", address="h1.example", services=(Service(**values),)),), known)


class ScriptedProcess:
    """A long-lived command: tests put lines, `sent` holds what the console wrote."""

    def __init__(self, command: str, host: ScriptedHost) -> None:
        self.command, self.host = command, host
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.status: int | None = 0
        self.stderr = b""
        self.closed = False

    def put(self, message: Mapping[str, Any] | bytes) -> None:
        """One line of its stdout."""
        self.queue.put_nowait(message if isinstance(message, bytes) else json.dumps(message).encode())

    def finish(self, status: int | None = 0, stderr: bytes = b"") -> None:
        """Its end."""
        self.status, self.stderr = status, stderr
        self.queue.put_nowait(None)

    async def lines(self) -> AsyncIterator[bytes]:
        while (line := await self.queue.get()) is not None:
            yield line
            self.queue.task_done()

    async def send(self, line: bytes) -> None:
        if self.host.gone:
            raise TransportError("lost", "h1", "send", "connection lost", "wait")
        self.sent.append(json.loads(line))
        self.host.on_line(self, self.sent[-1])

    async def end(self) -> None:
        self.host.on_end(self)

    async def close(self) -> None:
        self.closed = True

    async def wait(self) -> tuple[int | None, bytes]:
        return self.status, self.stderr


class ScriptedHost:
    """What all connections to one host share. answers: command -> its JSON lines for a payload."""

    def __init__(self) -> None:
        # What a deployment asks first: a host that says nothing about itself stands in nobody's way.
        self.answers: dict[str, Answer] = dict.fromkeys(ASKED_FIRST, _nothing)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.processes: list[ScriptedProcess] = []
        self.hello: dict[str, Any] | None = dict(HELLO)
        self.refuse: list[TransportError] = []
        """raised by the next connects, in order."""
        self.broken: list[tuple[int, bytes]] = []
        """(status, stderr) of the next watchers, which end before a word."""
        self.tcp: Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] | None = None
        self.http: dict[str, tuple[int, str]] = {}
        """what the host's watcher answers for the service, by path."""
        self.connects = 0
        self.gone = False
        self.started = asyncio.Event()
        self.following = asyncio.Event()
        self.transport: ScriptedTransport | None = None

    def open(self, host: Host) -> ScriptedTransport:
        """A connection, as the console's factory makes it."""
        return ScriptedTransport(host.name, self)

    def on_line(self, process: ScriptedProcess, line: dict[str, Any]) -> None:
        if process.command == "watch" and len(process.sent) == 1:
            if self.broken:
                process.finish(*self.broken.pop(0))
            elif self.hello is not None:
                process.put(self.hello)
                self.started.set()
        if line.get("cmd") == "http":
            status, body = self.http.get(line["path"], (404, ""))
            process.put({"kind": "http", "id": line["id"], "status": status, "body": body, "seconds": 0.01})
        if process.command == "journal":
            self.following.set()

    def on_end(self, process: ScriptedProcess) -> None:
        payload = process.sent[0]
        self.calls.append((process.command, payload))
        for answer in self.answers[process.command](payload):
            process.put(answer)
        process.finish()

    def newest(self, command: str) -> ScriptedProcess:
        """The newest process of that command."""
        return next(p for p in reversed(self.processes) if p.command == command)

    def watcher(self) -> ScriptedProcess:
        return self.newest("watch")

    def cut(self) -> None:
        """The connection is lost."""
        for process in self.processes:
            if not process.closed:
                process.finish(None)
        if self.transport is not None:
            self.transport.closed.set()
        self.started.clear()


class ScriptedTransport:
    """base.Transport to a ScriptedHost."""

    def __init__(self, name: str, host: ScriptedHost) -> None:
        self.name, self.host = name, host
        self.closed = asyncio.Event()

    async def connect(self) -> None:
        self.host.connects += 1
        if self.host.refuse:
            raise self.host.refuse.pop(0)
        self.host.transport = self

    async def run(self, argv: Sequence[str], stdin: bytes = b"", timeout: float = 30.0) -> Completed:
        payload = json.loads(stdin)
        if self.host.answers[argv[-1]] is not _nothing:
            self.host.calls.append((argv[-1], payload))
        lines = self.host.answers[argv[-1]](payload)
        return Completed(0, b"".join(json.dumps(x).encode() + b"\n" for x in lines), b"")

    async def start(self, argv: Sequence[str]) -> ScriptedProcess:
        process = ScriptedProcess(argv[-1], self.host)
        self.host.processes.append(process)
        return process

    async def open_tcp(self, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.host.tcp is None:
            raise TransportError("no-forwarding", self.name, "open a stream", "forwarding is forbidden", "-")
        return await self.host.tcp(address, port)

    async def close(self) -> None:
        self.closed.set()


class ScriptedLauncher:
    """Launcher whose repairs are counted."""

    def __init__(self, host: Host) -> None:
        self.privileged, self.why = True, ""
        self.repairs: list[tuple[int, bytes]] = []

    def argv(self, command: str) -> list[str]:
        return ["python3", "host", command]

    async def repair(self, transport: Any, status: int, stderr: bytes) -> None:
        self.repairs.append((status, stderr))
        if b"sudo" in stderr:
            self.privileged, self.why = False, "sudo asks for a password"
        elif b"can't open file" not in stderr:
            raise TransportError("config", "h1", "start the host code", stderr.decode(), "look at the host")


class Clock:
    """A clock and a sleep that tests move by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Passes at once, in this clock's time."""
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)
