"""The outcome: in /run first, then as an event, then as a line of the history. Safe to do again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ddtree_console.domain import events as ev
from ddtree_console.hostside import durable, eventlog, mark, procfs, releases, unitctl
from ddtree_console.hostside.hostclock import Clock
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.tx_base import Tx


def outcome(
    tx: Tx, state: str, *, release: str = "", serves: str = "", detail: str = "", exit_code: int | None = None
) -> None:
    """Records how it ended. Never raises for a full or read-only disk."""
    tx.remember(outcome=state)
    code = ev.OUTCOMES[state] if exit_code is None else exit_code
    tx.emit(ev.OUTCOME, state=state, release=release, serves=serves, detail=detail, exit_code=code)
    write_history(tx.roots, tx.unit, tx.id)


def furthest(stream: Iterable[ev.Event]) -> str:
    """The last rung or phase that began in the first attempt."""
    last = ""
    for event in stream:
        if event.kind == ev.BACK:
            break
        if event.kind == ev.PHASE:
            last = str(event.data.get("phase", last))
        elif event.kind == ev.RUNG and event.data.get("state") in ("run", "ok"):
            rung = str(event.data.get("rung", last))
            # While the server loads, its phase says more than "no listener yet".
            if rung not in ("listener",) or not last:
                last = rung
    return last


def entry(stream: list[ev.Event]) -> dict[str, Any] | None:
    """The history line of a transaction, from its events; None while it has no outcome."""
    done = next((event for event in stream if event.kind == ev.OUTCOME), None)
    if done is None:
        return None
    first = stream[0]
    begin: Mapping[str, Any] = next((event.data for event in stream if event.kind == ev.BEGIN), {})
    failed: Mapping[str, Any] = next(
        (event.data for event in stream if event.kind == ev.VERDICT and not event.data.get("ok")), {}
    )
    killed = next((str(event.data.get("why", "")) for event in stream if event.kind == ev.BACK), "")
    same_boot = first.boot == done.boot
    return {
        "v": 1,
        "tx": done.tx,
        "what": begin.get("what", ""),
        "wall": first.wall,
        "seconds": round(done.t - first.t, 3) if same_boot else None,
        "source": begin.get("source", ""),
        "target": begin.get("target", ""),
        "profile": begin.get("profile", ""),
        "outcome": done.data.get("state", ""),
        "furthest": furthest(stream),
        "cause": failed.get("cause", "") or done.data.get("detail", "") or killed,
        "code": failed.get("code", ""),
        "finding": failed.get("finding") or {},
        "who": begin.get("who", ""),
        "from": begin.get("from", ""),
        "reason": begin.get("reason", ""),
        "changed": begin.get("changed", []),
        "edited": begin.get("edited", []),
        "boot": first.boot,
        "release": done.data.get("release", ""),
        "serves": done.data.get("serves", ""),
    }


def write_history(roots: Roots, unit: str, tx: str) -> None:
    """Appends the line of a finished transaction unless it is there. Never raises."""
    line = entry(eventlog.events(roots, unit, tx))
    if line is None:
        return
    for path in (releases.history(roots, unit), releases.history_spill(roots, unit)):
        if f'"tx":"{tx}"' in (durable.read_text(path) or ""):
            return
    try:
        releases.append_history(roots, unit, line)
    except OSError as error:
        print(f"history not written: {error.strerror}: {tx}", flush=True)


def close_cut(roots: Roots, units: Iterable[str] = (), clock: Clock | None = None) -> list[str]:
    """Closes attempts that a reboot or power cut ended, as `cut`; their transactions. Cheap when there are none.

    units: which to look at; none given = every unit that anything is kept of. Only for those who may write there.
    """
    clock = clock or Clock()
    closed: list[str] = []
    for unit in units or _units(roots):
        for tx in eventlog.unlisted(roots, unit):
            stream = eventlog.events(roots, unit, tx)
            if any(event.kind == ev.OUTCOME for event in stream):
                write_history(roots, unit, tx)
            elif stream and not _alive(roots, unit, tx, stream):
                _close(roots, unit, tx, stream, clock)
                closed.append(tx)
        _remember(roots, unit)
    return closed


def _close(roots: Roots, unit: str, tx: str, stream: list[ev.Event], clock: Clock) -> None:
    state = releases.load(roots, unit)
    rebooted = stream[0].boot != procfs.boot_id(roots)
    how = "ended by a reboot or power cut" if rebooted else "the transaction and its recovery were killed"
    what = f"{state.committed} is committed" if state.committed else "nothing is committed"
    if roots.trial(unit).exists():
        what += ", and a trial is still in place"
    log = eventlog.EventLog(roots, unit, tx, clock)
    code = ev.OUTCOMES["cut"]
    log.emit(ev.OUTCOME, state="cut", release=state.committed, serves="", detail=f"{how}; {what}", exit_code=code)
    now = mark.read(roots, unit)
    if now.tx == tx:
        mark.change(roots, unit, now, outcome="cut")
    write_history(roots, unit, tx)


def _remember(roots: Roots, unit: str) -> None:
    """After a reboot /run knows no transaction: the newest one, so that nobody has to search for it again."""
    if mark.read(roots, unit).tx:
        return
    newest = eventlog.newest_tx(roots, unit)
    if newest:
        mark.change(roots, unit, mark.Mark(), tx=newest, outcome="done")


def _units(roots: Roots) -> list[str]:
    return sorted(path.parent.name for path in Path(roots.var).glob("*/events"))


def _alive(roots: Roots, unit: str, tx: str, stream: list[ev.Event]) -> bool:
    """Whether the transaction may still run: only one of this boot can."""
    here = procfs.boot_id(roots)
    began = mark.read(roots, unit)
    this_boot = (began.tx == tx and began.boot == here) or (bool(stream) and stream[-1].boot == here)
    return this_boot and _running(unitctl.tx_unit(unit))


def _running(tx_unit: str) -> bool:
    state = unitctl.show(tx_unit)
    # An empty answer means that systemd was too busy: then nothing is closed.
    return not state.load or state.active in ("active", "activating", "deactivating", "reloading")
