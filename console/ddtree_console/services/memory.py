"""Memory of a launch: what a host says about its models once, and the estimate of any edit of it at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ddtree_console.domain import command_line
from ddtree_console.domain.engines import dialects, registry
from ddtree_console.domain.memory import gpus, learnt
from ddtree_console.domain.memory.estimate import estimate as estimate_of
from ddtree_console.domain.memory.launch import value
from ddtree_console.domain.memory.types import Estimate, Inputs, ModelFacts
from ddtree_console.domain.render import render_unit
from ddtree_console.domain.snapshot import GpuReport
from ddtree_console.domain.spec import Profile, Service
from ddtree_console.services.commands import Commands
from ddtree_console.services.wire import mapping

CACHES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "HOME")
"""variables of a unit that say where its models lie."""
SECONDS = 15.0


@dataclass(frozen=True)
class Line:
    """A launch as its command line says it. note: why it is not quite that ('' where it is)."""

    model: str = ""
    draft: str = ""
    python: str = ""
    flags: Mapping[str, Any] | None = None
    note: str = ""


@dataclass(frozen=True)
class Facts:
    """What the host said of the models that a launch names. starts: what real starts there said of memory."""

    line: Line
    target: ModelFacts
    draft: ModelFacts | None = None
    starts: tuple[Mapping[str, Any], ...] = ()


def line_of(profile: Profile, service: Service) -> Line | None:
    """The launch of that profile in that slot; None for an engine whose memory is not modelled."""
    if profile.engine != "sglang":
        return None
    note = ""
    try:
        argv = render_unit(profile, service, registry.get(profile.engine)).argv
        read = command_line.parse(argv)
        flags, model, python = dict(read.flags), read.model, read.python
    except ValueError as error:
        note = f"counted without the build's own spelling: {error.args[0] if error.args else error}"
        flags, model, python = {**_intent(profile), **profile.flags}, profile.model, profile.python
    draft = value(flags, "speculative-draft-model-path") or value(flags, "speculative-draft-model")
    return Line(str(model or ""), str(draft or ""), str(python or ""), flags, note)


def _intent(profile: Profile) -> dict[str, Any]:
    """Flags that cost what an intent costs, where no dialect spells it."""
    intent = profile.speculative
    if intent is None or intent.kind == "none":
        return {}
    found: dict[str, Any] = {"speculative-algorithm": "DFLASH", "speculative-draft-model-path": intent.draft or ""}
    return found if intent.budget is None else {**found, "speculative-num-draft-tokens": intent.budget + 1}


def _model(raw: Any, name: str) -> ModelFacts:
    told = mapping(raw)
    weights = told.get("weights")
    problems = told.get("problems")
    return ModelFacts(
        path=str(told.get("path") or name),
        config=mapping(told.get("config")),
        weights=weights if type(weights) is int else None,
        problems=tuple(str(p) for p in problems) if isinstance(problems, list) else (),
    )


async def facts(commands: Commands, service: Service, profile: Profile) -> Facts | None:
    """Asks the host, as the unit's user; None for an engine whose memory is not modelled. HostError."""
    line = line_of(profile, service)
    if line is None:
        return None
    names = [name for name in (line.model, line.draft) if name]
    env = {name: text for name in CACHES if isinstance(text := profile.env.get(name), str)}
    asked = {
        "paths": names,
        "user": profile.user or "",
        "workdir": profile.workdir or "",
        "revision": str(value(line.flags or {}, "revision") or "main"),
        "env": env,
        "unit": service.unit,
    }
    answer = await commands.call("model", asked, SECONDS)
    models = answer.get("models") if isinstance(answer.get("models"), list) else []
    by_name = {name: _model(raw, name) for name, raw in zip(names, models or (), strict=False)}
    starts = answer.get("starts")
    return Facts(
        line,
        by_name.get(line.model, ModelFacts(line.model, problems=("the profile names no model",))),
        by_name.get(line.draft) if line.draft else None,
        tuple(s for s in starts if isinstance(s, dict)) if isinstance(starts, list) else (),
    )


def inputs(service: Service, profile: Profile, known: Facts, report: GpuReport, release: str) -> Inputs | None:
    """What an estimate of that (edited) profile is made from; None for an engine whose memory is not modelled.

    release: of the build, '' where it was not inspected: then the profile's dialect is taken at its word.
    """
    line = line_of(profile, service)
    if line is None:
        return None
    target, draft = known.target, known.draft if line.draft else None
    if line.model != known.line.model:
        target = ModelFacts(line.model, problems=("the model was changed since the host was asked",))
    if line.draft and line.draft != known.line.draft:
        draft = ModelFacts(line.draft, problems=("the draft model was changed since the host was asked",))
    number = dialects.release_of(profile.dialect) if not release else None
    free, total = gpus.without(report, service.gpus, service.unit)
    if line.note:
        target = replace(target, problems=(*target.problems, line.note))
    made = Inputs(
        target, draft, line.flags or {}, free, total, release or (f"0.5.{number}" if number is not None else "")
    )  # fmt: skip
    residual, words = learnt.of(known.starts, made, line.model, line.python)
    return replace(made, residual=residual, learnt=words)


def estimate(
    service: Service, profile: Profile, known: Facts | None, report: GpuReport, release: str
) -> Estimate | None:
    """The estimate of that profile; None where it is not modelled or nothing was asked yet. At once."""
    made = inputs(service, profile, known, report, release) if known is not None else None
    return estimate_of(made) if made is not None else None
