"""The fleet as rows: one a service, the most urgent first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddtree_console.domain.service_state import DEGRADED, FAILED, LOST, MOVING, State, service_state
from ddtree_console.domain.snapshot import FleetSnapshot, Gpu, HostSnapshot, ServiceSnapshot
from ddtree_console.domain.spec import Fleet
from ddtree_console.ui.paint import Piece, Row, bar, columns, fit, gib, host_text, whole_gib
from ddtree_console.ui.views.finding import failed_attempt, finding_of, release_of

NAME = 80
"""characters of a name that a row may need"""


@dataclass(frozen=True)
class Item:
    """One service with everything that its row needs."""

    host: HostSnapshot
    service: ServiceSnapshot
    state: State
    gpus: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The service's name."""
        return self.service.key.partition("/")[2]

    @property
    def about(self) -> str:
        """What its state is about: the finding's sentence where there is one that explains it."""
        detail, found = self.state.detail, finding_of(self.service)
        if found is None or not found.summary:
            return detail
        attempt = failed_attempt(self.service.tx)
        cause = attempt.verdict.cause if attempt is not None and attempt.verdict is not None else ""
        if self.service.finding is None and cause and cause in detail:
            return detail.replace(cause, found.summary)  # `went back: ` stays before it
        return found.summary if self.service.finding is not None or self.state.rank == FAILED else detail

    @property
    def release(self) -> str:
        """r12 shadow-small: what runs or is on trial."""
        tx, kept = self.service.tx, self.service.release
        if tx is not None and tx.running and tx.attempt is not None:
            return host_text(f"{tx.attempt.target} {tx.attempt.profile or tx.profile}".strip(), NAME)
        if tx is not None and tx.outcome == "went_way_back" and tx.attempt is not None:
            return host_text(f"{tx.attempt.target} {tx.attempt.profile}".strip(), NAME)
        return host_text(f"{kept.committed} {kept.profile}".strip(), NAME) or "–"


def items(snapshot: FleetSnapshot, fleet: Fleet, now: float, words: str = "") -> list[Item]:
    """All services, filtered by the words (all must occur), the most urgent first."""
    slots = {s.key: s.gpus for h in fleet.hosts for s in h.services}
    out = []
    for host in snapshot.hosts:
        for service in host.services:
            gpus = slots.get(service.key, ())
            item = Item(host, service, service_state(host, service, now, gpus), gpus)
            text = f"{service.key} {item.state.word} {item.release}".lower()
            if all(word in text for word in words.lower().split()):
                out.append(item)
    return sorted(out, key=lambda i: (i.state.rank, i.service.key))


def summary(all_items: Sequence[Item]) -> str:
    """4 services · 2 ready · 1 starting."""
    groups = {FAILED: "failed", DEGRADED: "degraded", LOST: "unreachable"}
    count: Counter[str] = Counter()
    for item in all_items:
        word = item.state.word.split()[0]
        moving = "going back" if item.state.glyph == "↻" else "starting"
        name = groups.get(item.state.rank, moving if item.state.rank == MOVING else word)
        count[{"no": "stopped", "stopping": "stopped"}.get(name, name)] += 1
    order = ("failed", "going back", "starting", "degraded", "unreachable", "stopped", "ready")
    parts = [f"{count[name]} {name}" for name in order if count[name]]
    many = "service" if len(all_items) == 1 else "services"
    return " · ".join([f"{len(all_items)} {many}", *parts])


def memory(gpus: Sequence[Gpu], mine: Sequence[int], cells: int = 20) -> Piece:
    """0-1 44.1/48G ████: the fullest of the slot's GPUs; a serving GPU is meant to be full, so no alarm colour."""
    own = [g for g in gpus if g.index in mine]
    if not own:
        return "–", "dim"
    fault = next((g for g in own if g.fault), None)
    if fault is not None:
        return f"{fault.index} {host_text(fault.fault or '', 60)}", "bad"
    label = f"{min(mine)}-{max(mine)}" if len(mine) > 1 else str(mine[0])
    known = [g for g in own if g.used is not None]
    if not known:
        return f"{label} –", "dim"
    full = max(known, key=lambda g: g.used or 0)
    if not full.total:
        return f"{label} {gib(full.used)}G", ""
    blocks = "".join(bar((full.used or 0) / full.total, 4)).rstrip("░")
    text = f"{label:3} {gib(full.used)}/{whole_gib(full.total)}"
    return (f"{text} {blocks}" if len(text) + 5 <= cells else text), ""


def lock_text(holder: str) -> str:
    """⊘ and who holds the lock."""
    return f"⊘ {host_text(holder, 200)}"


def sizes(all_items: Sequence[Item], wide: int) -> tuple[int, ...]:
    """Widths of host, service, state, release, memory, tok/s, accept and note for a pane of that width."""
    host = min(14, max([4, *(len(i.host.name) for i in all_items)]))
    service = min(20 if wide >= 110 else 14, max([7, *(len(i.name) for i in all_items)]))
    left = wide - host - service - 17 - 4
    if left < 14:
        return host, service, max(12, min(17, wide - host - service - 3)), 0, 0, 0, 0, 0
    if left < 32:
        return host, service, 17, left - 8, 0, 6, 0, 0
    if left < 62:
        memory_size = 19 if left >= 50 else 12
        return host, service, 17, min(26, left - memory_size - 16), memory_size, 6, 6, 0
    return host, service, 17, 22, 20, 6, 6, left - 22 - 20 - 12 - 5


HEADS = ("HOST", "SERVICE", "STATE", "RELEASE", "GPU MEMORY", "TOK/S", "ACCEPT", "")


def heading_row(widths: Sequence[int]) -> Row:
    """The column heads."""
    return ((" ", ""), *columns(widths, [(h, "dim") for h in HEADS], right=(5, 6)))


def item_row(item: Item, widths: Sequence[int]) -> Row:
    """One service as a row under those widths; where there is no note column the lock takes the release's place."""
    service, state = item.service, item.state
    gone = state.glyph == "?"
    tok, accept = service.http.tok_s, service.http.accept_len
    release: Piece = (item.release, "")
    note: Piece = (host_text(item.about, 200), "dim" if service.finding is None else "warn")
    if service.lock:
        note = (lock_text(service.lock), "warn")
        if not widths[7]:
            release = note
    return (
        (" ", ""),
        *columns(
            widths,
            (
                (item.host.name, ""),
                (item.name, "bold"),
                (state.text, state.colour),
                release,
                ("–", "dim") if gone else memory(item.host.gpus.gpus, item.gpus, widths[4]),
                ("–", "dim") if gone or tok is None else (f"{tok:,.0f}", ""),
                ("–", "dim") if gone or accept is None else (f"{accept:.2f}", ""),
                note,
            ),
            right=(5, 6),
        ),
    )


def tiny_row(item: Item, wide: int) -> Row:
    """State and as much of the name as fits."""
    state = fit(item.state.text, min(max(8, len(item.state.text)), max(8, wide - 8)))
    return ((state, item.state.colour), (" " + fit(item.service.key, max(0, wide - len(state) - 1)), ""))


def detail(item: Item | None, now: float) -> Piece:
    """The line below the table: what the chosen row's state is about."""
    if item is None:
        return "", ""
    host = item.host
    if host.error and item.state.glyph == "?":
        retry = "" if host.retry_at is None else f"; retry in {max(0, int(host.retry_at - now + 0.5))} s"
        attempt = f" (attempt {host.attempt})" if host.attempt else ""
        text = host.error if host.error.startswith(host.name) else f"{host.name}: {host.error}"
        return host_text(text) + retry + attempt, "warn"
    text, found = item.about, finding_of(item.service)
    parts = [f"{item.service.key}: {host_text(text)}"] if text else []
    if found is not None:
        if found.summary not in text:  # it serves again, and the last trial still has its reason
            parts.append(f"{host_text(release_of(item.service), 40)}: {host_text(found.summary)}")
        parts.append("x why, a applies" if found.remedies and found.remedies[0].edits else "x why")
    if item.service.lock:
        parts.append(lock_text(item.service.lock))
    if item.service.http.source and item.state.glyph == "●" and item.service.http.tok_s is not None:
        parts.append(f"figures from {host_text(item.service.http.source, NAME)}")
    return " · ".join(parts), "dim" if item.state.colour == "good" else item.state.colour


def words_of(all_items: Sequence[Item]) -> dict[str, str]:
    """key -> state without percents and ages, for `since you left`."""
    return {i.service.key: " ".join(w for w in i.state.text.split() if not w[0].isdigit()) for i in all_items}


def since(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """What changed between two words_of; '' when nothing did."""
    changes = [f"{key} {before[key]} -> {word}" for key, word in after.items() if key in before and before[key] != word]
    more = f" · and {len(changes) - 4} more" if len(changes) > 4 else ""
    return "since you left: " + " · ".join(changes[:4]) + more if changes else ""
