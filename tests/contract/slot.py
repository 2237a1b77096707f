"""A slot on a real host whose server is a replayed recording, deployed through the product's own connection."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ddtree_console.domain import events, txview
from ddtree_console.domain.plan import Candidate, Plan
from ddtree_console.transport.base import Transport
from tests.contract.code import Argv
from tests.contract.real import RealHost
from tests.lab.slot import MODEL, UNIT_TEXT

UNIT = "sglang-qwen.service"


@dataclass(frozen=True)
class Slot:
    """The slot `qwen` on a bare host."""

    host: RealHost
    transport: Transport
    argv: Argv
    python: str
    replayer: str

    def candidate(self, recording: str, *, speed: float = 40, name: str = "") -> Candidate:
        """A release that replays that recording."""
        flags = f"--recording {recording} --speed {speed:g} --host 127.0.0.1 --port {self.host.port}"
        command = f"{self.python} -B {self.replayer} {flags} --model-path {MODEL}"
        text = UNIT_TEXT.format(recording=recording, command=command, directives="")
        profile = name or recording
        return Candidate(unit_text=text, profile_name=profile, profile={"name": profile, "engine": "sglang"})

    def plan(self, recording: str, *, speed: float = 40, **more: Any) -> Plan:
        """A deployment of it."""
        settings = {"hold": 0.5, "deadline": 60.0, "who": "tester", "origin": "contract", **more}
        return Plan("deploy", UNIT, "qwen", self.host.port, new=self.candidate(recording, speed=speed), **settings)

    async def ask(self, command: str, question: dict[str, Any]) -> dict[str, Any]:
        """One command's JSON answer."""
        done = await self.transport.run(self.argv(command), json.dumps(question).encode(), timeout=60)
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            raise AssertionError(f"{command}: {done}") from None
        return answer

    async def submit(self, plan: Plan) -> str:
        """The transaction's id."""
        answer = await self.ask("submit", plan.to_json())
        assert answer.get("ok"), answer
        return str(answer["tx"])

    async def view(self, tx: str) -> txview.TxView | None:
        """The transaction as its events tell it now."""
        asked = json.dumps({"unit": UNIT, "tx": tx}).encode()
        done = await self.transport.run(self.argv("events"), asked)
        told = (events.parse(line.decode("utf-8", "replace")) for line in done.stdout.splitlines())
        return txview.fold_all(event for event in told if event is not None)

    async def wait(self, tx: str, until: Callable[[txview.TxView], Any], timeout: float = 60) -> txview.TxView:
        """The view as soon as `until` holds of it."""
        end = time.monotonic() + timeout
        view = await self.view(tx)
        while view is None or not until(view):
            assert time.monotonic() < end, view
            await asyncio.sleep(0.1)  # a host has no way to call us: what the console does through the watcher
            view = await self.view(tx)
        return view

    async def outcome(self, tx: str) -> txview.TxView:
        """The transaction once it has ended."""
        return await self.wait(tx, lambda view: view.outcome)

    async def deploy(self, recording: str, *, speed: float = 40, **more: Any) -> txview.TxView:
        """Submits it and waits for its end."""
        return await self.outcome(await self.submit(self.plan(recording, speed=speed, **more)))

    async def waiting(self, tx: str) -> None:
        """Until it has started the unit."""
        await self.wait(tx, lambda v: v.attempt and any(step.name == "wait" for step in v.attempt.steps))

    async def served(self) -> str:
        """The model that the server names; '' when nothing answers."""
        question = {"port": self.host.port, "address": "127.0.0.1", "method": "GET", "path": "/v1/models"}
        answer = await self.ask("http", {**question, "body": None, "timeout": 5, "pid": 0, "auth": False})
        if answer.get("status") != 200:
            return ""
        body = answer["body"]
        return str((json.loads(body) if isinstance(body, str) else body)["data"][0]["id"])

    def state(self) -> dict[str, Any]:
        """state.json."""
        state: dict[str, Any] = json.loads(self.host.path(f"/var/lib/ddtree-console/{UNIT}/state.json").read_text())
        return state

    def on_trial(self) -> bool:
        """Whether a trial lies in /run."""
        return self.host.path(f"/run/systemd/system.control/{UNIT}").exists()

    async def active(self) -> str:
        """ActiveState."""
        return (await self.host.exec(f"systemctl show -p ActiveState {UNIT}")).strip().partition("=")[2]


async def new_slot(host: RealHost, transport: Transport, argv: Argv) -> Slot:
    """A slot on a bare host that has the replayer."""
    python = (await host.exec("command -v python3")).strip()
    return Slot(host, transport, argv, python, host.replayer())
