"""A console over a scripted host in the place of the real one, for commands in this process and in one of their own."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddtree_console.cli import live, main
from ddtree_console.domain.spec import Fleet, Profile
from ddtree_console.services.console import LiveConsole
from ddtree_console.services.plans import Operator
from tests.services.doubles import ScriptedHost, ScriptedLauncher
from tests.services.doubles import fleet as small_fleet

PROFILES = {
    "shadow": Profile(name="shadow", python="/opt/env/bin/python3", model="/models/m", flags={"context-length": 8192}),
    "linear": Profile(name="linear", engine="wrapper", python="/opt/env/bin/python3", model="/models/m"),
}
FLEET = small_fleet(PROFILES, profile="shadow", fallback="linear")


class Store:
    """Profiles in memory."""

    def profiles(self) -> Mapping[str, Profile]:
        return PROFILES

    def save(self, base: str, name: str, profile: Profile) -> Path:
        return Path("profiles", f"{name}.yaml")


def install(host: ScriptedHost) -> None:
    """Commands meet this host from now on."""

    def build(fleet: Fleet, read_only: bool) -> LiveConsole:
        return LiveConsole(fleet, Store(), host.open, ScriptedLauncher, Operator("ops@laptop"), read_only=read_only)

    live.load_fleet = lambda explicit: FLEET
    live.build = build


def event(n: int, kind: str, **data: Any) -> dict[str, Any]:
    raw = {"v": 1, "tx": "t1", "n": n, "boot": "b", "t": float(n), "wall": 0.0, "kind": kind, **data}
    return {"kind": "tx", "unit": "s1.service", "event": raw}


def units(**unit: Any) -> dict[str, Any]:
    return {"kind": "units", "units": {"s1.service": {"load": "loaded", "active": "active", "sub": "running", **unit}}}


def transaction(state: str, *before: dict[str, Any]) -> list[dict[str, Any]]:
    """A whole transaction that ends so."""
    begin = event(
        0, "begin", what="deploy", source="r1", target="r2", profile="shadow", who="ops@laptop", on_failure="back"
    )
    start = event(1, "step", step="start", state="ok", secs=0.1, invocation="i1")
    end = event(90, "outcome", state=state, release="r2", serves="m (sglang) on port 30000")
    return [begin, start, *before, end]


class TellingHost(ScriptedHost):
    """Tells these messages as soon as its watcher runs; the transaction of `tells` once a plan was submitted."""

    def __init__(self, *messages: dict[str, Any], tells: list[dict[str, Any]] | None = None) -> None:
        super().__init__()
        self.messages, self.tells = messages, tells or []
        self.answers["submit"] = self._submit

    def on_line(self, process: Any, line: dict[str, Any]) -> None:
        super().on_line(process, line)
        if process.command == "watch" and len(process.sent) == 1:
            for message in self.messages:
                process.put(message)

    def _submit(self, plan: dict[str, Any]) -> list[dict[str, Any]]:
        for message in self.tells:
            self.watcher().put(message)
        return [{"ok": True, "tx": "t1"}]


def flood(payload: dict[str, Any]) -> list[dict[str, Any]]:
    """Far more log lines than a pipe holds."""
    entry = {"__CURSOR": "c", "_SYSTEMD_UNIT": "s1.service", "MESSAGE": "x" * 200}
    return [entry] * 5000


if __name__ == "__main__":
    told = TellingHost(units(), tells=transaction("committed")[: int(sys.argv[1])])
    told.answers["logs"] = flood
    install(told)
    print(json.dumps({"started": True}), file=sys.stderr, flush=True)
    sys.exit(main(sys.argv[2:]))
