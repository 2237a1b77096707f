"""The headless console as screens and commands see it; services/console.py implements it, UI tests bring doubles.

Everything here is safe to call from the event loop; nothing blocks it. Methods that ask a host raise HostError.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ddtree_console.domain.build import Build, FlagMark
from ddtree_console.domain.events import Event
from ddtree_console.domain.memory.types import Estimate
from ddtree_console.domain.snapshot import FleetSnapshot
from ddtree_console.domain.spec import Fleet, Profile


@dataclass(frozen=True)
class JournalLine:
    """One journal entry. seq rises by one per line of this console's feed. text: raw (sanitise before it is shown)."""

    seq: int
    when: float
    unit: str
    text: str
    priority: int = 6
    invocation: str = ""
    gap: str = ""
    """not '' for a marker of missing entries: says why ('vacuumed', 'reconnected', 'dropped 1,204 lines')."""


@dataclass(frozen=True)
class FieldDiff:
    """One change: old -> new ('' = absent). where: flag | env | unit | args | command | speculative."""

    where: str
    name: str
    old: str
    new: str


@dataclass(frozen=True)
class DeployPreview:
    """What `d` shows before anything happens."""

    key: str
    profile: str
    release_from: str
    unit_text: str
    command: str
    diff_running: tuple[FieldDiff, ...]
    diff_stored: tuple[FieldDiff, ...]
    unit_diff: tuple[str, ...]
    """unified diff lines between the unit on disk and the rendered one."""
    running_requests: int | None
    on_failure: str
    """'r11, then linear-wrapper' or what else happens on failure."""
    warnings: tuple[str, ...]
    refusals: tuple[str, ...]
    """why the host would refuse; --force with a reason overrides those marked in `forceable`."""
    forceable: bool = True


@dataclass(frozen=True)
class RollbackPreview:
    """What the countdown names."""

    key: str
    to: str
    target: str
    running_requests: int | None
    refusal: str = ""


@dataclass(frozen=True)
class Submitted:
    """A transaction that the host accepted."""

    key: str
    tx: str


@dataclass(frozen=True)
class HistoryEntry:
    """One attempt, from the host's history.jsonl, oldest keys kept in `raw`."""

    tx: str
    what: str
    started: float
    seconds: float
    source: str
    target: str
    profile: str
    outcome: str
    furthest: str
    cause: str
    who: str
    reason: str
    changed: tuple[str, ...] = ()
    """against the release that was committed."""
    raw: Mapping[str, Any] = field(default_factory=dict)
    edited: tuple[str, ...] = ()
    """against the attempt before."""


@dataclass(frozen=True)
class Check:
    """One check of a host or service. state: ok | warn | fail | unknown."""

    name: str
    state: str
    evidence: str
    remedy: str = ""


@dataclass(frozen=True)
class Preflight:
    """What is known before a deploy. checks: named, with evidence; a `fail` refuses unless forced with a reason.

    marks: one a flag of the profile. memory: None where the engine has no model of it.
    """

    key: str
    profile: str
    checks: tuple[Check, ...] = ()
    build: Build = field(default_factory=Build)
    marks: tuple[FlagMark, ...] = ()
    memory: Estimate | None = None
    seconds: float = 0.0

    @property
    def failed(self) -> tuple[Check, ...]:
        """Checks that refuse a deploy."""
        return tuple(c for c in self.checks if c.state == "fail")


class Console(Protocol):
    """Everything that a screen or a command does."""

    fleet: Fleet
    read_only: bool

    async def run(self) -> None:
        """Keep every host's panels live until cancelled."""
        ...

    def snapshot(self) -> FleetSnapshot:
        """The state now; cheap."""
        ...

    async def changed(self, serial: int) -> FleetSnapshot:
        """Waits until a snapshot newer than `serial` exists, and returns it."""
        ...

    def journal(self, key: str, after: int = -1, limit: int = 2000) -> Sequence[JournalLine]:
        """Buffered lines of the slot's unit with seq > after, oldest first (at most the newest `limit`)."""
        ...

    def dropped(self, key: str) -> int:
        """Lines of the slot that were received but not kept for the view."""
        ...

    async def profiles(self) -> Mapping[str, Profile]:
        """Profiles by name, as on disk now."""
        ...

    async def kept_profile(self, key: str, release: str) -> Profile | None:
        """The profile that made a release, as the host keeps it, also where it was never saved; None without."""
        ...

    async def save_profile(self, base: str, name: str, edited: Profile) -> str:
        """Writes `name` extending `base` with what differs; returns the path."""
        ...

    async def preview(self, key: str, profile: str | Profile) -> DeployPreview:
        """Renders and compares; changes nothing."""
        ...

    async def preview_rollback(self, key: str, to: str = "way-back") -> RollbackPreview:
        """What a rollback would do; to: way-back | known-good | rN."""
        ...

    async def deploy(
        self,
        key: str,
        profile: str | Profile,
        *,
        on_failure: str = "back",
        hold: float | None = None,
        reason: str = "",
        force: bool = False,
        takeover: bool = False,
    ) -> Submitted:
        """Starts the transaction on the host."""
        ...

    async def rollback(self, key: str, to: str = "way-back", *, takeover: bool = False) -> Submitted:
        """Fast path; a running transaction of the slot gets a request instead (Submitted.tx is then its id)."""
        ...

    async def request(self, key: str, what: str) -> None:
        """To the running transaction: extend | back | confirm | abandon."""
        ...

    def follow(self, key: str, tx: str) -> AsyncIterator[Event]:
        """Events of a transaction from its first to its outcome, across reconnects."""
        ...

    async def history(self, key: str, limit: int = 200) -> Sequence[HistoryEntry]:
        """Newest first."""
        ...

    async def logs(self, key: str, *, lines: int = 1000, invocation: str = "") -> Sequence[JournalLine]:
        """A piece of the journal, oldest first."""
        ...

    async def check(self, host: str, service: str = "") -> Sequence[Check]:
        """Connection, sudo, python, systemd, unit verifies, port and GPU free, way back startable."""
        ...

    async def preflight(self, key: str, profile: str | Profile) -> Preflight:
        """All that can be known before this profile is deployed there; parts that fail say why and block nothing."""
        ...

    def forecast(self, key: str, profile: Profile) -> tuple[tuple[FlagMark, ...], Estimate | None]:
        """Marks and memory of an edited profile from what the last preflight of the slot read: pure and at once."""
        ...

    async def accept_drift(self, key: str) -> None:
        """Takes the differences of the running release as known: its badge goes until they change."""
        ...

    async def adopt(self, host: str, unit: str) -> tuple[str, str]:
        """Keeps the unit as r1 on the host and writes a profile: (profile name, path)."""
        ...


OnChange = Callable[[], None]
