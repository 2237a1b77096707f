"""One service slot on a lab host whose server is a replayed recording, and deployments of it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from ddtree_console.domain.plan import Candidate, Plan
from ddtree_console.domain.txview import TxView
from tests.lab.hostcode import HostCode
from tests.lab.replay import give_replayer, replay_command

UNIT_TEXT = """[Unit]
Description=replays {recording}
After=network.target

[Service]
ExecStart={command}
TimeoutStartSec=infinity
TimeoutStopSec=10
{directives}
[Install]
WantedBy=multi-user.target
"""
MODEL = "/models/qwen3.6-27b"


@dataclass(frozen=True)
class Slot:
    """A slot named qwen. speed: how many times faster than recorded its servers start."""

    code: HostCode
    unit: str = "sglang-qwen.service"
    port: int = 30000
    speed: float = 30.0

    def give_replayer(self) -> Slot:
        """The host gets the replayer and its recordings."""
        give_replayer(self.code.host)
        return self

    def candidate(self, recording: str, *, speed: float | None = None, directives: str = "") -> Candidate:
        """A release that replays that recording; directives: further lines of [Service]."""
        command = replay_command(recording, self.port, MODEL, speed or self.speed)
        text = UNIT_TEXT.format(recording=recording, command=command, directives=directives)
        return Candidate(unit_text=text, profile_name=recording, profile={"name": recording, "engine": "sglang"})

    def plan(self, new: Candidate, *, way_back: Candidate | None = None, **more: Any) -> Plan:
        """A deployment with a short hold. more: any field of Plan."""
        settings = {"hold": 1.0, "deadline": 60.0, "who": "tester", "origin": "lab", **more}
        return Plan("deploy", self.unit, "qwen", self.port, new=new, way_back=way_back, **settings)

    def deploy(self, recording: str, *, speed: float | None = None, directives: str = "", **more: Any) -> str:
        """Submits it; the transaction's id."""
        return self.code.submit(self.plan(self.candidate(recording, speed=speed, directives=directives), **more))

    def outcome(self, tx: str, timeout: float = 60.0) -> TxView:
        """The transaction once it has ended."""
        return self.code.wait(self.unit, tx, timeout=timeout)

    def commit_healthy(self) -> str:
        """A release that serves and is committed, as quickly as can be; its name."""
        view = self.outcome(self.deploy("dflash-healthy-bars", speed=200, hold=0.2))
        assert view.outcome == "committed", view
        return str(self.code.state(self.unit)["committed"])

    def waiting(self, tx: str) -> TxView:
        """The transaction once it has started the unit and waits until that serves."""
        return self.code.wait(
            self.unit, tx, lambda view: view.attempt and any(step.name == "wait" for step in view.attempt.steps)
        )

    def serves_soon(self, timeout: float = 20.0) -> str:
        """serves(), once it does; '' when it does not in time."""
        end = time.monotonic() + timeout
        while not (model := self.serves()) and time.monotonic() < end:
            time.sleep(0.1)
        return model

    def serves(self) -> str:
        """The model that the server names when asked on the host; '' when nothing answers."""
        done = self.code.host.exec(
            f"curl --silent --max-time 5 http://127.0.0.1:{self.port}/v1/models", check=False, timeout=20
        )
        try:
            return str(json.loads(done.stdout)["data"][0]["id"])
        except (ValueError, LookupError, TypeError):
            return ""

    def show(self, *properties: str) -> dict[str, str]:
        """Properties of the unit, from systemd itself."""
        asked = ",".join(properties)
        lines = self.code.host.exec(f"systemctl show {self.unit} -p {asked}").stdout.splitlines()
        return dict(line.split("=", 1) for line in lines)
