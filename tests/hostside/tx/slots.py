"""A slot on a sandbox host, driven through the host code's own commands."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddtree_console.config.rules import load_rules
from ddtree_console.demo.host import SandboxHost
from ddtree_console.domain import txview
from ddtree_console.domain.events import Event
from ddtree_console.domain.plan import Candidate, Plan
from ddtree_console.hostside import eventlog, kept, releases, roots

HERE = Path(__file__).parent
UNIT_TEXT = """[Unit]
Description=serves {model}

[Service]
ExecStart={python} -IS {server} {port} {model} {modes}
TimeoutStopSec=30
{more}
[Install]
WantedBy=multi-user.target
"""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Slot:
    """One unit and port on one host."""

    def __init__(self, host: SandboxHost, name: str = "qwen") -> None:
        self.host, self.unit, self.port = host, f"{name}.service", free_port()
        self.roots = roots.load(str(host.roots_file))
        self.tools = host.root / "tools"
        self.tools.mkdir(exist_ok=True)
        for file in ("entry.py", "server.py"):
            shutil.copy(HERE / file, self.tools / file)
        (self.tools / "rules.json").write_text(json.dumps(load_rules()))

    # -- what it asks for

    def text(self, model: str, *modes: str, more: str = "") -> str:
        """A unit that runs the test server."""
        return UNIT_TEXT.format(
            model=model,
            python=sys.executable,
            server=self.tools / "server.py",
            port=self.port,
            modes=" ".join(modes),
            more=more,
        )

    def candidate(self, model: str, *modes: str, more: str = "", **fields: Any) -> Candidate:
        """A release of that server."""
        profile = {"name": model, "engine": "sglang", "flags": dict(fields.get("set_flags") or {})}
        return Candidate(self.text(model, *modes, more=more), model, profile, **fields)

    def plan(self, model: str, *modes: str, **fields: Any) -> Plan:
        """A deployment with a short hold. more, set_flags, must, secrets go to the candidate."""
        own = {key: fields.pop(key) for key in ("more", "set_flags", "must", "secrets") if key in fields}
        new = self.candidate(model, *modes, **own)
        settings = {"hold": 0.2, "deadline": 20.0, "who": "ana", "origin": "desk", **fields}
        return Plan("deploy", self.unit, "slot", self.port, new=new, **settings)

    def rollback(self, to: str, **fields: Any) -> Plan:
        """A rollback."""
        settings = {"hold": 0.2, "deadline": 20.0, "who": "ana", "origin": "desk", **fields}
        return Plan("rollback", self.unit, "slot", self.port, to=to, **settings)

    # -- doing it

    async def command(self, name: str, value: Any, timeout: float = 40.0) -> dict[str, Any]:
        """One host command's answer."""
        line = f"{sys.executable} -I -B {self.tools / 'entry.py'} --roots={self.host.roots_file} {name}"
        done = await self.host.exec(line, json.dumps(value), timeout)
        assert done.stdout, done
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    async def submit(self, plan: Plan) -> str:
        """Starts it; the transaction's id."""
        answer = await self.command("submit", plan.to_json())
        assert answer.get("ok"), answer
        return str(answer["tx"])

    async def request(self, tx: str, what: str, **more: Any) -> dict[str, Any]:
        """A request to the running transaction."""
        return await self.command("request", {"unit": self.unit, "tx": tx, "request": what, "who": "bo", **more})

    async def until(self, tx: str, true: Callable[[txview.TxView], Any], timeout: float = 30.0) -> txview.TxView:
        """The transaction as soon as that holds of it; AssertionError with its events otherwise."""
        end = time.monotonic() + timeout
        follower = eventlog.Follower(self.roots, self.unit, tx)
        view: txview.TxView | None = None
        lines: list[str] = []
        while time.monotonic() < end:
            fresh = follower.poll()
            lines += fresh
            view = txview.fold_all((e for e in map(parse, fresh) if e is not None), view)
            if view is not None and true(view):
                return view
            await asyncio.sleep(0.02)
        told = "\n".join([*lines, *self.host.journal(f"ddtree-tx-{self.unit}")])
        raise AssertionError(f"{self.unit} {tx}: not within {timeout:g} s\n{told}")

    async def outcome(self, tx: str, timeout: float = 30.0) -> txview.TxView:
        """The transaction once it has ended and its unit is gone."""
        view = await self.until(tx, lambda view: view.outcome, timeout)
        await until(lambda: not self.tx_running(), timeout)
        return view

    async def deploy(self, model: str, *modes: str, **fields: Any) -> txview.TxView:
        """Submits and waits for the outcome."""
        return await self.outcome(await self.submit(self.plan(model, *modes, **fields)))

    # -- what is true

    def view(self, tx: str) -> txview.TxView | None:
        """The transaction as its events tell it now."""
        return txview.fold_all(self.events(tx))

    def newest(self) -> str:
        """The release kept last."""
        return kept.names(self.roots, self.unit)[-1]

    async def closed(self) -> list[str]:
        """What a watcher of this boot closes as cut."""
        code = "import sys; from ddtree_console.hostside import roots, tx_end"
        code += "; print(*tx_end.close_cut(roots.load(sys.argv[1])))"
        done = await self.host.exec(f"{sys.executable} -I -B -c '{code}' {self.host.roots_file}")
        assert done.returncode == 0, done
        return done.stdout.split()

    async def until_serves(self, timeout: float = 20.0) -> str:
        """The model that answers, as soon as one does."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            model = await self.serves()
            if model:
                return model
            await asyncio.sleep(0.02)
        raise AssertionError(f"{self.unit}: nothing serves\n" + "\n".join(self.host.journal(self.unit)[-20:]))

    def tx_running(self) -> bool:
        """Whether the transaction's unit is there."""
        unit = self.host.machine.units.get(f"ddtree-tx-{self.unit}")
        return unit is not None and unit.active not in ("inactive", "failed")

    def events(self, tx: str) -> list[Event]:
        """All events of a transaction."""
        return eventlog.events(self.roots, self.unit, tx)

    def state(self) -> releases.State:
        """state.json."""
        return releases.load(self.roots, self.unit)

    def trial(self) -> bool:
        """Whether a trial lies in /run."""
        return self.roots.trial(self.unit).exists()

    def history(self) -> list[dict[str, Any]]:
        """history.jsonl."""
        path = releases.history(self.roots, self.unit)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def active(self) -> str:
        """ActiveState of the unit."""
        unit = self.host.machine.units.get(self.unit)
        return "inactive" if unit is None else unit.active

    async def serves(self) -> str:
        """The model that answers on the port, '' when nothing does."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return ""
        writer.write(b"GET /model_info HTTP/1.0\r\n\r\n")
        raw = await reader.read()
        writer.close()
        return str(json.loads(raw.partition(b"\r\n\r\n")[2])["model_path"])


async def until(true: Callable[[], object], timeout: float) -> None:
    """Waits until it holds; AssertionError otherwise."""
    end = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < end, "it did not come true"
        await asyncio.sleep(0.02)


def parse(line: str) -> Event | None:
    """One event line."""
    from ddtree_console.domain import events

    return events.parse(line)
