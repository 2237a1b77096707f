"""A console without hosts, on canned snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ddtree_console.domain import events as ev
from ddtree_console.domain.build import FlagMark
from ddtree_console.domain.memory.types import Estimate
from ddtree_console.domain.snapshot import (
    FleetSnapshot,
)
from ddtree_console.domain.spec import Fleet, Profile
from ddtree_console.services.api import (
    Check,
    DeployPreview,
    FieldDiff,
    HistoryEntry,
    JournalLine,
    Preflight,
    RollbackPreview,
    Submitted,
)
from ddtree_console.services.errors import HostError
from tests.ui import known
from tests.ui.canned import FLEET, WALL, fleet, journal

PREVIEW = DeployPreview(
    key="ct129/sglang-qwen",
    profile="shadow-small",
    release_from="r11",
    unit_text="[Service]\n",
    command="/root/ml-env/bin/python3 -m sglang.launch_server --model-path /models/qwen3.6-27b --port 30000 "
    "--mem-fraction-static 0.95 --context-length 32768 --max-running-requests 4 --api-key canary-0123456789",
    diff_running=(
        FieldDiff("flag", "mem-fraction-static", "0.88", "0.95"),
        FieldDiff("flag", "context-length", "131072", "32768"),
        FieldDiff("flag", "max-running-requests", "", "4"),
    ),
    diff_stored=(FieldDiff("flag", "mem-fraction-static", "0.9", "0.95"),),
    unit_diff=(
        "@@ -3,1 +3,1 @@",
        "-ExecStart=python --mem-fraction-static 0.88",
        "+ExecStart=python --mem-fraction-static 0.95",
    ),
    running_requests=2,
    on_failure="r11, then linear-wrapper",
    warnings=("GPU 0 is shared with wrapper: fractions sum to 0.97",),
    refusals=(),
)

HISTORY = (
    HistoryEntry(
        "t3",
        "rollback",
        WALL - 600,
        41.0,
        "r12",
        "linear-wrapper",
        "linear-wrapper",
        "committed",
        "held",
        "",
        "ops@desk",
        "",
    ),
    HistoryEntry(
        "t2",
        "deploy",
        WALL - 1200,
        104.0,
        "r11",
        "r12",
        "shadow-small",
        "went_back",
        "graphs",
        "Capture CUDA graph failed: CUDA out of memory [0]",
        "ops@desk",
        "more context for the batch job",
        ("flag mem-fraction-static 0.88 -> 0.95", "flag context-length 131072 -> 32768"),
    ),
    HistoryEntry(
        "t1", "deploy", WALL - 90000, 213.0, "", "r11", "ddtree-shadow", "committed", "held", "", "ops@desk", "first"
    ),
)

CHECKS = (
    Check("connection", "ok", "SSH to ct129.example as ops, 12 ms"),
    Check("sudo", "ok", "sudo -n works"),
    Check("python", "ok", "3.11.2 at /usr/bin/python3"),
    Check(
        "unit verifies", "warn", "Unknown key [Foo] in section [Service], ignoring", "edit the unit, or adopt it again"
    ),
    Check("GPU free", "fail", "GPU 0: pid 991 (root, no unit) holds 21.3 GiB", "end it, or give the slot other GPUs"),
    Check("way back startable", "unknown", "its model path could not be read without sudo"),
)


class DoubleConsole:
    """services.api.Console on canned data; records what was asked of it."""

    def __init__(self, snapshot: FleetSnapshot | None = None, fleet_spec: Fleet = FLEET) -> None:
        self.fleet = fleet_spec
        self.read_only = False
        self.now = snapshot if snapshot is not None else fleet()
        self.lines: list[JournalLine] = journal()
        self.preview_is = PREVIEW
        self.rollback_is: RollbackPreview | None = None
        self.fails: HostError | None = None
        self.asked: list[tuple[Any, ...]] = []
        self.history_is: Sequence[HistoryEntry] = HISTORY
        self.preflight_is: Callable[[str, str], Preflight] = known.preflight
        self.preflight_fails: HostError | None = None
        self.gate: asyncio.Event | None = None
        """holds every preflight until set"""
        self.kept: dict[str, Profile] = {"r12": FLEET.profiles["shadow-small"], "r43": FLEET.profiles["shadow-small"]}
        self._marks: tuple[FlagMark, ...] | None = None
        self._changed = asyncio.Event()

    def push(self, snapshot: FleetSnapshot) -> None:
        """A newer snapshot."""
        self.now = replace(snapshot, serial=self.now.serial + 1)
        self._changed.set()

    async def run(self) -> None:
        """Nothing to keep live."""
        await asyncio.Event().wait()

    def snapshot(self) -> FleetSnapshot:
        """The canned one."""
        return self.now

    async def changed(self, serial: int) -> FleetSnapshot:
        """After push()."""
        while self.now.serial <= serial:
            self._changed.clear()
            await self._changed.wait()
        return self.now

    def journal(self, key: str, after: int = -1, limit: int = 2000) -> Sequence[JournalLine]:
        """The newest lines after `after`."""
        if not self.lines or self.lines[-1].seq <= after:
            return ()
        first = self.lines[0].seq
        return self.lines[max(0, after + 1 - first) :][-limit:]

    def dropped(self, key: str) -> int:
        """None."""
        return 0

    async def profiles(self) -> Mapping[str, Profile]:
        """Canned."""
        return dict(self.fleet.profiles)

    async def save_profile(self, base: str, name: str, edited: Profile) -> str:
        """Recorded."""
        self.asked.append(("save", base, name, edited))
        return f"profiles/{name}.yaml"

    async def preview(self, key: str, profile: str | Profile) -> DeployPreview:
        """Canned."""
        self.asked.append(("preview", key, profile))
        if self.fails is not None:
            raise self.fails
        name = profile if isinstance(profile, str) else profile.name
        return replace(self.preview_is, key=key, profile=name)

    async def preview_rollback(self, key: str, to: str = "way-back") -> RollbackPreview:
        """Canned."""
        return self.rollback_is or RollbackPreview(key, to, "linear-wrapper" if to == "way-back" else "r10", 2)

    async def deploy(self, key: str, profile: str | Profile, **options: Any) -> Submitted:
        """Recorded."""
        self.asked.append(("deploy", key, profile, options))
        if self.fails is not None:
            raise self.fails
        return Submitted(key, "t")

    async def rollback(self, key: str, to: str = "way-back", *, takeover: bool = False) -> Submitted:
        """Recorded."""
        self.asked.append(("rollback", key, to, takeover))
        if self.fails is not None:
            raise self.fails
        return Submitted(key, "t")

    async def request(self, key: str, what: str) -> None:
        """Recorded."""
        self.asked.append(("request", key, what))

    async def follow(self, key: str, tx: str) -> AsyncIterator[ev.Event]:
        """Nothing."""
        empty: tuple[ev.Event, ...] = ()
        for event in empty:
            yield event

    async def history(self, key: str, limit: int = 200) -> Sequence[HistoryEntry]:
        """Canned."""
        if self.fails is not None:
            raise self.fails
        return self.history_is

    async def logs(self, key: str, *, lines: int = 1000, invocation: str = "") -> Sequence[JournalLine]:
        """Canned."""
        return self.lines[-lines:]

    async def check(self, host: str, service: str = "") -> Sequence[Check]:
        """Canned."""
        return CHECKS

    async def preflight(self, key: str, profile: str | Profile) -> Preflight:
        """Canned; also what forecast knows from then on."""
        self.asked.append(("preflight", key, profile))
        if self.preflight_fails is not None:
            raise self.preflight_fails
        if self.gate is not None:
            await self.gate.wait()
        found = self.preflight_is(key, profile if isinstance(profile, str) else profile.name)
        self._marks = found.marks
        return found

    def forecast(self, key: str, profile: Profile) -> tuple[tuple[FlagMark, ...], Estimate | None]:
        """From the last preflight; nothing before one."""
        self.asked.append(("forecast", key, profile))
        return known.forecast(profile, self._marks) if self._marks is not None else ((), None)

    async def kept_profile(self, key: str, release: str) -> Profile | None:
        """As told."""
        return self.kept.get(release)

    async def accept_drift(self, key: str) -> None:
        """Recorded."""
        self.asked.append(("accept drift", key))
        if self.fails is not None:
            raise self.fails

    async def adopt(self, host: str, unit: str) -> tuple[str, str]:
        """Recorded."""
        self.asked.append(("adopt", host, unit))
        return ("adopted", "profiles/adopted.yaml")
