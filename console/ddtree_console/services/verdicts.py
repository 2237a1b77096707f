"""What build, flags and memory mean for a deployment, as checks beside those of the host. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ddtree_console.domain import build_pins
from ddtree_console.domain.build import REFUSED, Build, FlagMark
from ddtree_console.domain.engines import plugin as tree
from ddtree_console.domain.engines.base import DialectError
from ddtree_console.domain.engines.sglang_launch import launch_flags
from ddtree_console.domain.memory.types import Estimate
from ddtree_console.domain.spec import Profile
from ddtree_console.services.api import Check

SHOWN = 3
GIB = 1 << 30


def _joined(texts: Sequence[str], what: str = "; ") -> str:
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return what.join(texts[:SHOWN]) + more


def _spelled(mark: FlagMark) -> str:
    return mark.text or f"--{mark.name} is {mark.state} in this build"


def _remedy(found: Sequence[FlagMark]) -> str:
    """One line for all of them: what to write instead, else to leave out."""
    said = []
    for mark in found:
        if mark.wanted and mark.state == "partial":
            said.append(f"add --{mark.wanted.lstrip('-')}")
        elif mark.wanted:
            said.append(f"write --{mark.wanted.lstrip('-')} for --{mark.name}")
        else:
            said.append(f"correct or leave out --{mark.name}")
    return _joined(list(dict.fromkeys(said)))


def flags(marks: Sequence[FlagMark], build: Build) -> list[Check]:
    """A launch with a flag that this build does not take ends with exit 2; a flag that does less than it says warns."""
    if not marks:
        return []
    bad = [m for m in marks if m.state in REFUSED]
    unsure = [m for m in marks if m.state == "not-known"]
    half = [m for m in marks if m.state == "partial"]
    old = [m for m in marks if m.state == "deprecated"]
    named = f"{build.engine} {build.release}".strip()
    found: list[Check] = []
    if bad:
        found.append(Check("flags", "fail", _joined([_spelled(m) for m in bad]), _remedy(bad)))
    elif unsure and len(unsure) == len(marks):
        why = next((p for p in build.problems if "flags" in p), next(iter(build.problems), unsure[0].text))
        found.append(Check("flags", "unknown", why or "not known, because the build was not read"))
    else:
        known = len(marks) - len(unsure)
        aside = f"; {_joined([m.name for m in unsure], ', ')} not known" if unsure else ""
        state = "warn" if old else "ok"
        text = _joined([_spelled(m) for m in old]) if old else f"{known} of {len(marks)} known to {named}{aside}"
        found.append(Check("flags", state, text, _remedy(old) if old else ""))
    if half:
        found.append(Check("graphs", "warn", _joined([_spelled(m) for m in half]), _remedy(half)))
    return found


def memory(estimate: Estimate | None) -> list[Check]:
    """The estimate's verdict; nothing where the engine has no model of memory."""
    if estimate is None:
        return []
    name, levers = "memory", _joined(estimate.levers)
    if estimate.verdict == "not known":
        why = _joined(estimate.problems) or "nothing was read"
        return [Check(name, "unknown", why if why.startswith("not known") else f"not known, because {why}")]
    size = f"{estimate.tokens:,} tokens in the pool" if estimate.tokens is not None else ""
    many = f"{estimate.requests} requests at once" if estimate.requests is not None else ""
    said = ", ".join(x for x in (size, many) if x)
    if estimate.verdict == "fits":
        return [Check(name, "ok", said or "fits")]
    binding = next((t for t in estimate.terms if t.name == estimate.binding), None)
    term = f"{estimate.binding} decides" + (f" ({binding.bytes / GIB:.1f} GiB)" if binding is not None else "")
    why = "; ".join(x for x in (f"{estimate.verdict}: {term}" if estimate.binding else estimate.verdict, said) if x)
    state = "fail" if estimate.verdict == "does not fit" else "warn"
    return [Check(name, state, _joined([why, *estimate.problems]), levers or "no setting makes it fit on these GPUs")]


def patched(build: Build) -> list[Check]:
    """Files of the installation that are not as their packages recorded them."""
    if not build.patched:
        return [Check("patched files", "ok", "none in the packages that serve")] if build.package else []
    why = f"{len(build.patched)} differ from their packages' RECORD: {_joined(build.patched, ', ')}"
    return [Check("patched files", "warn", why, "know them before you blame the release; install again to undo them")]


def pins(build: Build) -> list[Check]:
    """Installed versions against what the engine's own metadata asks for; nothing where it asks for none."""
    if not build.pins:
        return []
    found = build_pins.mismatches(build)
    named = f"{build.engine} {build.release}".strip()
    if not found:
        return [Check("versions", "ok", f"{len(build.pins)} as {named} asks for them")]
    wanted = " ".join(f"{m.package}{m.wants}" for m in found)
    return [Check("versions", "warn", _joined([m.text for m in found]), f"install what {named} asks for: {wanted}")]


def plugin(profile: Profile) -> list[Check]:
    """What DDTree's plug-in refuses of this launch, and would say at its start; nothing for a launch without it."""
    if not tree.needed(profile):
        return []
    try:
        flags, _ = launch_flags(profile)
    except DialectError:
        return []  # said where the launch is rendered
    name = "plug-in"
    if said := tree.refusals(profile, flags):
        way = "--tp-size 1 where one GPU holds the model" if any("tensor" in text for text in said) else "change that"
        return [Check(name, "fail", _joined(list(said)), f"{way}, or speculative kind linear, which needs no plug-in")]
    if said := tree.doubts(profile, flags):
        return [Check(name, "warn", _joined(list(said)), "set --attention-backend triton")]
    return [Check(name, "ok", "no flag that it is known to refuse")]


def problems(build: Build) -> list[Check]:
    """What of the build is not known."""
    return [Check("build", "unknown", text) for text in build.problems[:SHOWN]]
