"""What a host itself says, through its back door, beside what a console showed of it."""

from __future__ import annotations

from collections.abc import Sequence

from ddtree_console.domain.events import Event
from ddtree_console.domain.journal import parse_entry
from tests.lab.faults import serves_committed
from tests.lab.faults_net.station import Station
from tests.lab.slot import Slot


def next_release(slot: Slot) -> str:
    """The name that the next deployment's release gets."""
    folder = slot.code.host.path(f"/var/lib/ddtree-console/{slot.unit}/releases")
    return f"r{max((int(path.name[1:]) for path in folder.glob('r*')), default=0) + 1}"


def whole(slot: Slot, tx: str, events: Sequence[Event]) -> None:
    """A console was told every event of it, once and in order."""
    told = [event.line() for event in events]
    assert told == [event.line() for event in slot.code.events(slot.unit, tx)]
    assert [event.n for event in events] == list(range(len(events)))


def journal_of(slot: Slot) -> list[str]:
    """Texts of the unit's entries, oldest first."""
    raw = slot.code.host.exec(f"journalctl --no-pager -o json --all -u {slot.unit}").stdout.encode()
    return [entry.text for entry in map(parse_entry, raw.splitlines()) if entry is not None]


async def whole_journal(slot: Slot, here: Station) -> None:
    """The console's lines are the host's: none is missing, none is there twice."""

    def the_same() -> bool:
        shown = [line.text for line in here.journal()]
        return len(shown) > 100 and shown == journal_of(slot)[-len(shown) :]

    await here.until(the_same, 5)  # a follower lags half a second
    assert [line.gap for line in here.journal() if line.gap] == []


async def one_of_each(slot: Slot, here: Station) -> None:
    """One watcher and one journal follower run there: a lost connection leaves none behind."""

    def running() -> list[str]:
        lines = slot.code.host.exec("ps -e -o args").stdout.splitlines()
        ours = [line.split()[-1] for line in lines if "/ddtree-console/bin/" in line]
        return sorted(word for word in ours if word in ("journal", "watch"))

    await here.until(lambda: running() == ["journal", "watch"], 5)  # the follower starts after the watcher


async def ended_well(slot: Slot, here: Station, tx: str, events: Sequence[Event], release: str) -> None:
    """Committed, ready, and the console's view is complete."""
    assert events[-1].data["state"] == "committed", events[-1]
    await here.ready(release)
    serves_committed(slot, release)
    whole(slot, tx, events)


def never_falsely_ready(here: Station, since: int = 0) -> None:
    """From that note on: never ready while a trial went on or the host was out of reach, and never failed."""
    false = [
        one
        for one in here.seen[since:]
        if one.text.startswith("✖") or (one.text.startswith("●") and (one.running or one.link != "up"))
    ]
    assert not false, here.seen[since:]
