"""What the host keeps of a slot: state.json, releases, the way back; and whether somebody edited what is on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ddtree_console.domain.snapshot import ReleaseState
from ddtree_console.hostside import durable, kept, mark
from ddtree_console.hostside.roots import Roots


@dataclass(frozen=True)
class State:
    """state.json. commits: releases in the order of their last commit. committing: written before the rename in /etc.

    held: release -> {"secs": {rung or phase: seconds}, "wall"}. failed_after: failed after their commit.
    drop_ins: path -> sha256 of what was adopted or accepted. accepted_drift: signature of the differences between asked
    and effective flags that an operator took as known.
    """

    committed: str = ""
    committing: str = ""
    commits: tuple[str, ...] = ()
    held: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    failed_after: tuple[str, ...] = ()
    drop_ins: Mapping[str, str] = field(default_factory=dict)
    accepted_drift: str = ""

    @property
    def known_good(self) -> str:
        """The committed release, unless it failed after its commit: then the newest older one that held; '' = none."""
        if self.committed and self.committed not in self.failed_after:
            return self.committed
        return self.before(self.committed)

    def before(self, release: str) -> str:
        """The newest release committed before that one that held and did not fail afterwards; '' for none."""
        older = self.commits[: self.commits.index(release)] if release in self.commits else self.commits
        for name in reversed(older):
            if name in self.held and name not in self.failed_after and name != release:
                return name
        return ""

    def with_commit(self, release: str, secs: Mapping[str, float], wall: float) -> State:
        """The state once that release is committed and held."""
        return replace(
            self,
            committed=release,
            committing="",
            commits=(*(name for name in self.commits if name != release), release),
            held={**self.held, release: {"secs": dict(secs), "wall": wall}},
            failed_after=tuple(name for name in self.failed_after if name != release),
        )

    def with_failed(self, release: str) -> State:
        """The state once that release failed after its commit."""
        if not release or release in self.failed_after:
            return self
        return replace(self, failed_after=(*self.failed_after, release))


def path(roots: Roots, unit: str) -> Path:
    """state.json of a unit."""
    return roots.kept(unit) / "state.json"


def _names(raw: Any) -> tuple[str, ...]:
    return tuple(x for x in raw if isinstance(x, str)) if isinstance(raw, list) else ()


def _mapping(raw: Any) -> dict[str, Any]:
    return raw if isinstance(raw, dict) else {}


def load(roots: Roots, unit: str) -> State:
    """The state on disk. A commit that a power cut ended between rename and state.json counts by what /etc holds."""
    raw = durable.read_json(path(roots, unit))
    state = State(
        committed=str(raw.get("committed") or ""),
        committing=str(raw.get("committing") or ""),
        commits=_names(raw.get("commits")),
        held=_mapping(raw.get("held")),
        failed_after=_names(raw.get("failed_after")),
        drop_ins=_mapping(raw.get("drop_ins")),
        accepted_drift=str(raw.get("accepted_drift") or ""),
    )
    if state.committing and state.committing != state.committed:
        text = kept.unit_text(roots, unit, state.committing)
        if text is not None and durable.read_text(roots.committed(unit)) == text:
            times = _mapping(raw.get("committing_held"))
            state = state.with_commit(state.committing, _mapping(times.get("secs")), float(times.get("wall") or 0.0))
    return replace(state, committing="")


def save(roots: Roots, unit: str, state: State, committing_held: Mapping[str, Any] | None = None) -> None:
    """Writes state.json. OSError (ENOSPC, EROFS) leaves the old one."""
    durable.write_json(
        path(roots, unit),
        {
            "committed": state.committed,
            "known_good": state.known_good,
            "committing": state.committing,
            "committing_held": committing_held,
            "commits": list(state.commits),
            "held": {name: dict(value) for name, value in state.held.items()},
            "failed_after": list(state.failed_after),
            "drop_ins": dict(state.drop_ins),
            "accepted_drift": state.accepted_drift,
        },
    )


def drop_ins(roots: Roots, unit: str) -> dict[str, str]:
    """path -> sha256 of every drop-in of this unit below /etc and /run."""
    found: dict[str, str] = {}
    for base in (Path(roots.etc, "systemd"), Path(roots.run, "systemd")):
        for folder in ("system.control", "system"):
            for file in sorted((base / folder / f"{unit}.d").glob("*.conf")):
                text = durable.read_text(file)
                if text is not None:
                    found[str(file)] = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    return found


def committed_path(roots: Roots, unit: str, release: str) -> Path:
    """Where the committed unit lies: in /etc, or where an adopted one was found (a package's folder)."""
    path = roots.committed(unit)
    origin = durable.read_json(kept.folder(roots, unit, release) / "profile.json").get("origin")
    return path if path.exists() or not isinstance(origin, str) else Path(origin)


def edited(roots: Roots, unit: str, state: State | None = None) -> tuple[str, ...]:
    """Paths on disk that differ from what was kept; a unit that was never adopted counts as one."""
    state = load(roots, unit) if state is None else state
    paths: list[str] = []
    on_disk = committed_path(roots, unit, state.committed) if state.committed else roots.committed(unit)
    wanted = kept.unit_text(roots, unit, state.committed) if state.committed else None
    if durable.read_text(on_disk) != wanted:
        paths.append(str(on_disk))
    now = drop_ins(roots, unit)
    paths += [p for p in sorted({*now, *state.drop_ins}) if now.get(p) != state.drop_ins.get(p)]
    return tuple(paths)


def previous(roots: Roots, unit: str, state: State) -> str:
    """What `known-good` means to somebody who asks for it: not the release that is in place, but the one before."""
    if roots.trial(unit).exists() or state.known_good != state.committed:
        return state.known_good
    return state.before(state.committed) or state.known_good


def state(roots: Roots, unit: str) -> ReleaseState:
    """Everything kept, as the watcher reports it. Reads a few small files; never raises."""
    now = load(roots, unit)
    on_trial = ""
    if roots.trial(unit).exists():
        on_trial = mark.read(roots, unit).release or "unknown"
    back = kept.way_back_name(roots, unit)
    return ReleaseState(
        committed=now.committed,
        profile=kept.profile_name(roots, unit, now.committed) if now.committed else "",
        known_good=now.known_good,
        trial=on_trial,
        way_back=back,
        edited=edited(roots, unit, now),
        kept=tuple(kept.names(roots, unit)),
        previous=previous(roots, unit, now),
        accepted_drift=now.accepted_drift,
    )


def last_good(roots: Roots, unit: str, state: State, profile: str) -> dict[str, float]:
    """Seconds of each rung and phase of the last good start: of the same profile where one held, else of any."""
    ordered: Sequence[str] = [name for name in reversed(state.commits) if name in state.held]
    same = [name for name in ordered if profile and kept.profile_name(roots, unit, name) == profile]
    for name in [*same, *ordered]:
        secs = _mapping(state.held[name].get("secs"))
        if secs:
            return {str(k): float(v) for k, v in secs.items() if isinstance(v, (int, float))}
    return {}


def note_failed(roots: Roots, unit: str, release: str) -> bool:
    """Records that a committed release failed after its commit; True when that is news. OSError as save()."""
    now = load(roots, unit)
    changed = now.with_failed(release)
    if changed is now:
        return False
    save(roots, unit, changed)
    return True


def history(roots: Roots, unit: str) -> Path:
    """history.jsonl of a unit."""
    return roots.kept(unit) / "history.jsonl"


def history_spill(roots: Roots, unit: str) -> Path:
    """History lines that the disk refused, until the next transaction or watcher of this boot moves them."""
    return roots.live(unit) / "spill" / "history.jsonl"


def append_history(roots: Roots, unit: str, entry: Mapping[str, Any]) -> None:
    """One line; spilled to /run where the disk refuses it. OSError only when both do."""
    line = json.dumps(entry, separators=(",", ":"))
    try:
        flush_history(roots, unit)
        durable.append_line(history(roots, unit), line)
    except OSError:
        durable.append_line(history_spill(roots, unit), line)


def history_txs(roots: Roots, unit: str) -> list[str]:
    """The transactions that the history holds, oldest first."""
    found: list[str] = []
    for path in (history(roots, unit), history_spill(roots, unit)):
        for line in (durable.read_text(path) or "").splitlines():
            try:
                found.append(str(json.loads(line)["tx"]))
            except (ValueError, KeyError, TypeError):
                continue
    return found


def flush_history(roots: Roots, unit: str) -> None:
    """Moves spilled lines to the disk. OSError when it still refuses."""
    text = durable.read_text(history_spill(roots, unit))
    for line in text.splitlines() if text else ():
        if line not in (durable.read_text(history(roots, unit)) or "").splitlines():
            durable.append_line(history(roots, unit), line)
    if text:
        history_spill(roots, unit).unlink()
