"""Of all that was seen in one start: which line is the cause, how sure that is, and whether it is the end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ddtree_console.domain.findings import attempts as memory
from ddtree_console.domain.findings import remedies, stalls, unitside, wording
from ddtree_console.domain.findings.attempts import Attempted
from ddtree_console.domain.findings.blocks import Block
from ddtree_console.domain.findings.rules import Rule
from ddtree_console.domain.findings.start import Seen, Start
from ddtree_console.domain.findings.types import Evidence, Finding, Remedy

GENERIC, EXPLAINED, ANCHORED, PASSED = 20, 6, 30, 15
CERTAIN = 90
"""strength from which a line says something by itself: a compiler's, the kernel's."""
KEPT_EVIDENCE = 6
QUOTING = 9
"""strength of a wrapper whose quotation is known: below any consequence that tells something."""
ANSWERS_S = 5.0
"""an answer so long after the scheduler's end comes from a process that did not end with it."""
LINKED = frozenset(("rendezvous-failed", "peer-rank-died", "native-crash", "slow-rank-timeout", "unknown"))
"""what one rank prints because another one fails."""
HINTS = ("stalled-rendezvous", "stalled-lock", "stalled-io", "stalled-dead-child", "benign-warning")
"""a badge of these is only kept for when a silence has to be read, unless it is about a flag."""
CAUGHT = frozenset(("python-module-missing", "shared-lib-missing", "torch-abi-mismatch", "hub-access"))
"""imports and downloads are often tried."""
_BY_NEXT = re.compile(r"(?:subprocess\.)?CalledProcessError\b|KeyError\b|StopIteration\b")
_ENDS = re.compile(r"(?:KeyboardInterrupt|SystemExit|GeneratorExit|asyncio\.exceptions\.CancelledError)\b")


def findings(
    start: Start,
    *,
    before: Start | None,
    attempts: Sequence[Attempted],
    given: Mapping[str, Any],
    build: frozenset[str] | None,
    edited: tuple[str, ...],
    closed: bool,
) -> tuple[Finding, ...]:
    """Verdict first, then badges."""
    flags = {**given, **start.flags}
    maker = remedies.Maker(flags, build, attempts, edited)
    main = _cause(start, maker, closed) or stalls.finding(start, flags)
    seen = best(start)
    stall = stalls.dead_child(start, flags, seen) if seen is not None else None
    if stall is not None and main is not None:
        return (stall, main)
    if before is not None and not start.phases.served and (main is None or main.rule == "start-limit"):
        # the new start has said nothing of its own: what ended the one before it still stands
        earlier = _cause(before, remedies.Maker({**given, **before.flags}, build, attempts[:-1], edited), True)
        main = earlier or main
    shown = [s for s in start.seen if s.rule is not None and s.rule.role == "badge" and _shown(s.rule)]
    badges = [_made(s, start, maker, False) for s in shown]
    if main is None:
        slow = stalls.slow(start)
        badges = [*([slow] if slow is not None else []), *badges]
    return (*([main] if main is not None else []), *_distinct(badges))


def _shown(rule: Rule) -> bool:
    return rule.slug not in HINTS or bool(rule.about)


def _distinct(found: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple({f.rule: f for f in found}.values())


def score(seen: Seen, start: Start) -> int:
    """How well a line explains the end of this start; a cause has more than a wrapper, that more than a consequence."""
    rule, block = seen.rule, seen.block
    if rule is None:
        value = EXPLAINED if _BY_NEXT.match(seen.text) else GENERIC
        if _ENDS.match(seen.text):
            return 1
    else:
        value = rule.strength
        if rule.role == "consequence":
            return value
    if seen.quotes:
        return QUOTING
    if block is not None and block.anchored:
        value += ANCHORED
    if seen.line < start.moved and seen.place != "kernel":
        value -= PASSED
    return value


def _eligible(seen: Seen, start: Start) -> bool:
    if seen.rule is not None and seen.rule.role == "badge":
        return False
    if seen.block is not None and seen.block.kind == "asgi":
        return False
    if start.phases.served and not seen.served:
        return False
    if start.stopped and seen.line >= start.stopped and seen.place not in ("systemd", "kernel"):
        return False
    if seen.line < start.moved and not start.over and not start.silent:
        # the start went on: it was caught, or it is another rank's
        return seen.place == "kernel" or (seen.block is not None and seen.block.kind == "scheduler")
    return True


def best(start: Start) -> Seen | None:
    """The line that explains the end of this start best, None where none does."""
    pool = [s for s in start.seen if _eligible(s, start)]
    return max(pool, key=lambda s: (score(s, start), -s.line), default=None)


def _cause(start: Start, maker: remedies.Maker, closed: bool) -> Finding | None:
    seen = best(start)
    if start.stopped and (seen is None or seen.rule is None or seen.rule.role == "consequence"):
        return None
    told = unitside.slug_of_exit(start.exit.get("code", ""), start.exit.get("status", ""), start.exit.get("result", ""))
    if seen is not None and _lives_on(seen, start):
        return _zombie(seen, start)
    weak = seen is None or (seen.rule is not None and seen.rule.role == "consequence")
    known = seen is not None and seen.rule is not None and seen.rule.slug == told
    if told and not known and (weak or told == "host-memory-short"):
        return _of_exit(told, start, maker)
    if seen is None:
        return _nothing_known(start) if start.over else None
    fatal = _fatal(seen, start, closed)
    if not fatal and seen.place == "line" and not start.over and seen.rule is not None and seen.rule.strength < CERTAIN:
        return None  # a line in passing, while nothing has failed
    if seen.rule is None:
        return _unknown(seen, start, fatal)
    return _made(seen, start, maker, fatal)


def _lives_on(seen: Seen, start: Start) -> bool:
    """Whether the scheduler ended and the main process goes on to answer what needs no scheduler."""
    if start.over or not _ended(seen.block) or not start.moved < seen.line < start.answered:
        return False
    return seen.t is None or start.answered_t is None or start.answered_t - seen.t >= ANSWERS_S


def _zombie(seen: Seen, start: Start) -> Finding:
    return Finding(
        slug="zombie-service",
        summary="The scheduler ended with an exception and the main process lives: the unit stays active and "
        "/v1/models and /health answer, but no token comes.",
        confidence=0.8,
        fatal=True,
        evidence=_evidence(seen, start),
        remedies=(Remedy("Restart the service; newer releases end by themselves.", command="systemctl restart UNIT"),),
        rules_out=("An answer of /v1/models or /health proves nothing here: the main process gives it.",),
        phase=seen.phase or start.phases.now,
        rule="zombie-answers",
    )


def _fatal(seen: Seen, start: Start, closed: bool) -> bool:
    """Whether this is the end in fact: the process is gone, a line after which nothing recovers, or long silence."""
    rule = seen.rule
    if rule is not None and rule.fatal == "never":
        return False
    if start.over in ("exit", "gone"):
        return True
    if rule is not None and rule.fatal == "always" and (not seen.served or seen.place in ("systemd", "kernel")):
        return True
    if rule is not None and rule.role == "consequence":
        return bool(start.over) and closed and rule.slug != "unknown"
    if start.over or start.silent >= stalls.AFTER_ERROR_S:
        return True
    block = seen.block
    if seen.line < start.moved or rule is None or rule.role == "wrapper":
        return False
    if rule.role == "symptom":
        # it names what most often stands behind it: enough at the end of a log, where the engine says that it ended it
        return closed and _ended(block) and slug_of(seen) not in LINKED
    if block is not None and block.anchored:
        return True
    if not closed:
        return False
    # The log ends here. A compiler's line was the end when failures followed it; so was an exception, unless the
    # program went on after it, or it is of a kind that programs catch.
    if any(s.line > seen.line and _failed(s) and s.text != seen.text for s in start.seen):  # not another rank's own
        return True
    if block is None or start.ordinary > seen.line:
        return False
    return rule.slug not in CAUGHT or any(s.block is block and s is not seen and _failed(s) for s in start.seen)


def _ended(block: Block | None) -> bool:
    return block is not None and (block.root or block).kind == "scheduler"


def _failed(seen: Seen) -> bool:
    return seen.rule is None or seen.rule.role not in ("badge", "benign")


def _evidence(seen: Seen, start: Start) -> tuple[Evidence, ...]:
    out = [Evidence(seen.line, seen.text)]
    texts = {seen.text}

    def add(line: int, text: str) -> None:
        if text.strip() and text not in texts and len(out) < KEPT_EVIDENCE:
            texts.add(text)
            out.append(Evidence(line, text))

    slug = seen.rule.slug if seen.rule is not None else ""
    if slug == "unknown" and start.tail:  # a line that decides nothing: what looks worst before it is shown instead
        return tuple(Evidence(n, x) for n, x in start.tail)
    for other in start.seen:
        if other.rule is not None and other.rule.slug == slug and slug:
            add(other.line, other.text)
    for other in start.seen:
        if (
            other.block is not None
            and seen.block is not None
            and (other.block.root or other.block) is (seen.block.root or seen.block)
        ):
            add(other.line, other.text)
    for other in start.seen:
        rule = other.rule
        if rule is None or rule.slug == "unknown":  # `Received sigquit` decides nothing
            continue
        if rule.role in ("consequence", "wrapper") and other.line > seen.line:
            add(other.line, other.text)
    return tuple(out)


def slug_of(seen: Seen) -> str:
    """The slug of what was seen: some lines mean another cause in another phase."""
    rule = seen.rule
    if rule is None:
        return "unknown"
    if seen.served and "served" in rule.by_phase:
        return rule.by_phase["served"]
    for word, slug in rule.by_phase.items():
        if word in seen.phase:
            return slug
    return rule.slug


def _made(seen: Seen, start: Start, maker: remedies.Maker, fatal: bool) -> Finding:
    rule = seen.rule
    assert rule is not None
    slug = slug_of(seen)
    groups = seen.groups
    share = max(start.used.values(), default=0.0)
    # A share below the fraction in force explains nothing: the weights fitted, something else was too large.
    if slug == "kv-budget-too-small" and share > (maker.fraction or 0.0):
        groups = {"weights": f"{share:.4f}", **groups}
    values = maker.values(groups)
    stuck = memory.between(slug, maker.fraction, maker.attempts) if maker.has(memory.FRACTION) else ""
    if stuck:
        slug = "kv-budget-too-small"
    summary = wording.fill(rule.summary, values) or slug.replace("-", " ")
    found = Finding(
        slug=slug,
        summary=f"{stuck} {summary}".strip() if stuck else summary,
        confidence=rule.confidence,
        fatal=fatal,
        evidence=_evidence(seen, start),
        remedies=maker.make(rule, slug, groups, seen.phase, bool(stuck)),
        rules_out=tuple(wording.fill(x, values) for x in (*rule.rules_out, *_ruled_out(start))),
        phase=seen.phase or start.phases.now,
        rule=rule.id,
    )
    return maker.blamed(found, rule, groups)


def _ruled_out(start: Start) -> tuple[str, ...]:
    """What the exit looks like and is not."""
    asked = any(s.rule is not None and s.rule.id == "sigquit" for s in start.seen)
    if asked and start.exit.get("status") == "9" and start.exit.get("result") != "oom-kill":
        return ("Not the OOM killer: after a child's failure the server kills its own processes, itself included.",)
    return ()


def _of_exit(slug: str, start: Start, maker: remedies.Maker) -> Finding:
    words = {
        "host-memory-short": "The kernel killed the service because host memory (or MemoryMax=) ran out.",
        "native-crash": "The process died by a signal, without a Python exception.",
        "unit-start-policy": "systemd gave the start up; the cause lies in an earlier start or in its time limit.",
        "unit-exec-failed": "systemd could not execute the command of ExecStart=.",
        "unit-chdir-failed": "systemd could not change to WorkingDirectory=.",
        "unit-user-missing": "systemd could not find or become the user of User= or Group=.",
    }
    rule = next((s.rule for s in start.seen if s.rule is not None and s.rule.slug == slug), None)
    line = start.over_line or start.last_line
    return Finding(
        slug=slug,
        summary=words.get(slug, slug),
        confidence=0.8,
        fatal=True,
        evidence=(
            Evidence(line, start.last_text[:500] or "code={code} status={status}".format_map(_Blank(start.exit))),
        ),
        remedies=maker.make(rule, slug, {}, "", False) if rule is not None else remedies.of_slug(slug),
        phase=start.phases.now,
        rule="exit",
    )


class _Blank(dict):  # type: ignore[type-arg]
    def __missing__(self, key: str) -> str:
        return "?"


def _unknown(seen: Seen, start: Start, fatal: bool) -> Finding:
    where = f" while: {seen.phase}" if seen.phase else ""
    return Finding(
        slug="unknown",
        summary=f"Unknown. The most suspicious part is this exception{where}.",
        confidence=0.2,
        fatal=fatal,
        evidence=_evidence(seen, start),
        phase=seen.phase or start.phases.now,
        rule="",
    )


def _nothing_known(start: Start) -> Finding | None:
    """The process is gone and no line says why."""
    if start.exit.get("code") == "exited" and start.exit.get("status") == "0" and not start.exit.get("result"):
        return None
    lines = list(start.tail) or ([(start.last_line, start.last_text[:500])] if start.last_text else [])
    return Finding(
        slug="unknown",
        summary="Unknown: the process is gone and its log does not say why. These lines are the most suspicious.",
        confidence=0.1,
        fatal=True,
        evidence=tuple(Evidence(n, x) for n, x in lines[-KEPT_EVIDENCE:]),
        phase=start.phases.now,
    )
