"""What ails a service that serves, or only seems to: a pure fold of what its host and its server say.

A service is judged against itself: figures of an earlier hour with as many requests. An idle one has no figures and no
ailment; nothing is asked of a server for this but what services/probe.py asks anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ddtree_console.domain.findings.types import Evidence, Finding, Remedy, from_json
from ddtree_console.domain.service_state import proved
from ddtree_console.domain.snapshot import Gpu, ServiceSnapshot

SAMPLE_S = 4.0
RECENT, BASE, KEPT = 12, 36, 720
"""samples: of the last minute, the least of a history worth a comparison, and the most that are kept."""
SLOWED, HEALED = 0.4, 0.6
"""shares of the history's throughput: below the first it collapsed, above the second it is well again."""
ACCEPTS, LOST = 0.4, 0.25
"""accepted draft tokens a step that are worth watching, and the share of them below which acceptance collapsed."""
RESTART_S = 900.0


@dataclass(frozen=True)
class Seen:
    """What is looked at together. gpus: the slot's own. ranks: alive, dead, frozen schedulers. wall: the time now."""

    service: ServiceSnapshot
    gpus: Sequence[Gpu] = ()
    ranks: Mapping[str, Any] = field(default_factory=dict)
    xids: Sequence[Mapping[str, Any]] = ()
    now: float = 0.0
    wall: float = 0.0


@dataclass(frozen=True)
class Sample:
    """One look at a server under load. load: requests that run, as a power of two."""

    load: int
    tok_s: float | None
    accept: float | None


@dataclass(frozen=True)
class Ailments:
    """One service over time."""

    invocation: str = ""
    release: str = ""
    sampled: float = 0.0
    samples: tuple[Sample, ...] = ()
    """the history, without the last minute while that is judged to be ill."""
    recent: tuple[Sample, ...] = ()
    slow: bool = False
    finding: Finding | None = None


def fold(old: Ailments, seen: Seen) -> Ailments:
    """The service after one more look."""
    unit = seen.service.unit
    invocation = unit.invocation if unit is not None else ""
    if seen.service.release.committed != old.release:
        old = Ailments(release=seen.service.release.committed)
    if invocation != old.invocation:
        old = replace(old, invocation=invocation, recent=(), slow=False)
    if unit is None or unit.active != "active" or (seen.service.tx is not None and seen.service.tx.running):
        return replace(old, finding=None)
    old = _sampled(old, seen)
    served = proved(seen.service)
    found = _gpu(seen) or _dead(seen) or _xid(seen)
    if found is None and served:
        found = _restarts(seen) or _acceptance(old) or _throughput(old)
    return replace(old, finding=found or (_badge(seen.service) if served else None))


def _finding(
    slug: str, summary: str, evidence: Sequence[str], way_out: str, command: str = "", sure: float = 0.9
) -> Finding:
    lines = tuple(Evidence(0, text) for text in evidence if text)
    return Finding(slug, summary, sure, False, lines, (Remedy(way_out, (), command),), rule=f"ailment:{slug}")


# -- the GPU


def _gpu(seen: Seen) -> Finding | None:
    for gpu in seen.gpus:
        if gpu.fault:
            return _finding(
                "gpu-lost",
                f"GPU {gpu.index} cannot be used any more: {gpu.fault}.",
                (f"NVML: GPU {gpu.index} {gpu.name}: {gpu.fault}",),
                "Look at the kernel's log for Xid, then reset the GPU or reboot the host.",
                "journalctl -k -b --grep Xid",
            )
    return None


def card(address: str) -> tuple[int, ...]:
    """A PCI address without its function: NVML writes 00000000:41:00.0, the kernel 0000:41:00; () for none."""
    try:
        return tuple(int(part, 16) for part in address.partition(".")[0].split(":"))
    except ValueError:
        return ()


def _xid(seen: Seen) -> Finding | None:
    """Of this start only. Codes that a program causes by itself (13, 31, 43, 45) end it and are told by its log."""
    unit = seen.service.unit
    began = unit.since if unit is not None else None
    for raw in reversed(seen.xids):
        code, wall, pid = raw.get("code"), raw.get("wall"), raw.get("pid")
        if not isinstance(code, int) or code in (13, 31, 43, 45) or not isinstance(wall, (int, float)):
            continue
        own = unit is not None and bool(pid) and (pid == unit.main_pid or any(
            p.pid == pid and p.unit == unit.unit for gpu in seen.gpus for p in gpu.processes
        ))  # fmt: skip
        here = any(card(gpu.pci) and card(gpu.pci) == card(str(raw.get("pci"))) for gpu in seen.gpus)
        if began is not None and wall >= began and (own or (here and not pid)):
            return _finding(
                "gpu-xid",
                f"The NVIDIA driver reported Xid {code} on {raw.get('pci')} since this start.",
                (str(raw.get("text", "")),),
                "Look it up in NVIDIA's list of Xid errors: 48, 63, 74, 79, 94 and 95 want a reset or a new card.",
                "journalctl -k -b --grep Xid",
                0.7,
            )
    return None


# -- the scheduler


def _names(raw: Any) -> list[str]:
    return [x for x in raw if isinstance(x, str)] if isinstance(raw, list) else []


def _dead(seen: Seen) -> Finding | None:
    http, unit = seen.service.http, seen.service.unit
    restart = f"systemctl restart {unit.unit}" if unit is not None else ""
    answers = (
        f"the unit is active and {http.path} answers {http.status}" if http.status == 200 else "the unit is active"
    )
    for how, word in (("dead", "died"), ("frozen", "is stopped (SIGSTOP or a debugger)")):
        ranks = _names(seen.ranks.get(how))
        # before the server was ready a dead rank is the transaction's or systemd's to tell
        if ranks and (proved(seen.service) or http.status == 200):
            who = f"scheduler of rank {', '.join(ranks)}"
            step = "Restart the service." if how == "dead" else "Let it go on (SIGCONT) or restart the service."
            return _finding("zombie-service", f"It serves nobody: its {who} {word} while {answers}.",
                            (f"{who}: {how}",), step, restart)  # fmt: skip
    if http.error.startswith("hung"):
        return _finding("zombie-service", f"It serves nobody: {http.error}.", (http.error,),
                        "Restart the service.", restart, 0.8)  # fmt: skip
    return None


# -- restarts


def _restarts(seen: Seen) -> Finding | None:
    unit = seen.service.unit
    if unit is None or not unit.restarts or unit.since is None or not 0 <= seen.wall - unit.since < RESTART_S:
        return None
    times = "once" if unit.restarts == 1 else f"{unit.restarts} times"
    return _finding(
        "restarts",
        f"It ended by itself {times} since somebody started it, and systemd started it again.",
        (f"NRestarts={unit.restarts}",),
        "Read the log of the run before this one.",
        f"journalctl -u {unit.unit} -n 2000 --no-pager",
        1.0,
    )


# -- figures


def _sampled(old: Ailments, seen: Seen) -> Ailments:
    http = seen.service.http
    if not http.running or seen.now - old.sampled < SAMPLE_S or (not http.tok_s and http.accept_len is None):
        return old
    sample = Sample(http.running.bit_length(), http.tok_s or None, http.accept_len)
    recent = (*old.recent, sample)
    past, recent = recent[:-RECENT], recent[-RECENT:]
    new = replace(old, sampled=seen.now, recent=recent)
    slow = _slow(new)
    # what is ill must not become what is usual
    ill = slow or _acceptance(new) is not None
    return replace(new, slow=slow, samples=old.samples if ill else (*old.samples, *past)[-KEPT:])


def median(values: Sequence[float]) -> float:
    """The middle one (of an even number the upper of two): nothing more is worth a library here."""
    return sorted(values)[len(values) // 2]


def _level(samples: Sequence[Sample], load: int) -> float | None:
    rates = [s.tok_s for s in samples if s.load == load and s.tok_s]
    return median(rates) if rates else None


def _compared(old: Ailments) -> tuple[float, float] | None:
    """(usual, now) tokens a second at the load of the last minute; None where there is too little to compare."""
    if len(old.recent) < RECENT:
        return None
    load = old.recent[-1].load
    if sum(s.load == load and bool(s.tok_s) for s in old.samples) < BASE or any(s.load != load for s in old.recent):
        return None
    usual, now = _level(old.samples, load), _level(old.recent, load)
    return (usual, now) if usual and now else None


def _slow(old: Ailments) -> bool:
    found = _compared(old)
    if found is None:
        return old.slow
    return found[1] < (HEALED if old.slow else SLOWED) * found[0]


def _throughput(old: Ailments) -> Finding | None:
    found = _compared(old)
    if not old.slow or found is None:
        return None
    return _finding(
        "throughput-collapsed",
        f"Throughput fell to {found[1]:.0f} tokens a second; with as many requests it was {found[0]:.0f} before.",
        (f"median of the last minute: {found[1]:.1f} tok/s, of {len(old.samples)} looks before: {found[0]:.1f} tok/s",),
        "Look at the GPU's clocks, temperature and other users, and at the acceptance length.",
        "nvidia-smi -q -d CLOCK,PERFORMANCE",
        0.7,
    )


def _acceptance(old: Ailments) -> Finding | None:
    usual = [s.accept for s in old.samples if s.accept is not None]
    now = [s.accept for s in old.recent if s.accept is not None]
    if len(usual) < BASE or len(now) < RECENT:
        return None
    before, after = median(usual), median(now)
    if before - 1 < ACCEPTS or after - 1 >= LOST * (before - 1):
        return None
    return _finding(
        "acceptance-collapsed",
        f"The draft helps no more: {after:.2f} tokens a step are accepted, {before:.2f} before.",
        (f"median of the last minute: {after:.2f}, of {len(usual)} looks before: {before:.2f}",),
        "Check that draft and target belong together and that neither was changed; then restart or roll back.",
        sure=0.7,
    )


def _badge(service: ServiceSnapshot) -> Finding | None:
    """The warning with which this very start was accepted."""
    attempt = service.tx.attempt if service.tx is not None else None
    if attempt is None or attempt.verdict is None or not attempt.verdict.ok or service.unit is None:
        return None
    if attempt.invocation != service.unit.invocation:
        return None
    return from_json(dict(attempt.verdict.finding)) if attempt.verdict.finding else None
