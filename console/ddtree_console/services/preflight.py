"""What can be known before a deployment: checks of the host, its build, the flags in it, the memory. All at once.

What was read last of each slot is kept, so that an edited profile is judged at once (`forecast`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ddtree_console.domain.build import Build, FlagMark
from ddtree_console.domain.engines.base import DialectError
from ddtree_console.domain.memory.types import Estimate
from ddtree_console.domain.snapshot import GpuReport
from ddtree_console.domain.spec import Profile, Service
from ddtree_console.services import builds, checks, memory, verdicts
from ddtree_console.services.api import Check, Preflight
from ddtree_console.services.errors import HostError
from ddtree_console.services.hostwatch import HostWatch

LIMIT_S = 20.0
"""longest that build and models are waited for: a build that has to be asked for its --help takes seconds."""
GATE_S = 4.0
"""the same for a deployment's own preflight; what is not known by then does not stand in its way."""
FRESH_S = 60.0
"""for so long a deployment takes build and models as a preflight read them; all else it asks again."""
OWN = ("connection", "sudo")
"""checks of the console's own link: what they say, the submission itself says better."""
T = TypeVar("T")


class ChecksFailed(HostError):
    """A deployment is refused by checks. failed: which, with evidence and remedy."""

    def __init__(self, key: str, failed: tuple[Check, ...]) -> None:
        said = "; ".join(f"{c.name}: {c.evidence}" for c in failed[:3])
        said += f" and {len(failed) - 3} more" if len(failed) > 3 else ""
        remedy = next((c.remedy for c in failed if c.remedy), "mend it")
        super().__init__(key, "deploy", said, f"{remedy}; or force it, with a reason", 7)
        self.failed = failed


@dataclass
class _Known:
    """What the last preflight of one slot read."""

    build: Build = field(default_factory=Build)
    asked: object = None
    """whose build it is"""
    facts: memory.Facts | None = None
    gpus: GpuReport = field(default_factory=GpuReport)
    models: object = None
    """which models' facts they are"""
    at: float = float("-inf")
    unknown: tuple[Check, ...] = ()

    def build_of(self, profile: Profile) -> Build:
        """The build where that profile starts the one that was looked at, else one of which nothing is known."""
        if self.asked is None or self.asked == _interpreter(profile):
            return self.build
        return Build(problems=("flags are not known, because the profile starts another program: check again",))


def _interpreter(profile: Profile) -> object:
    """What decides which build a profile starts."""
    asked = builds.request(profile)
    return {key: asked.get(key) for key in ("engine", "python", "command", "workdir", "pythonpath")}


def _models(profile: Profile, service: Service) -> object:
    line = memory.line_of(profile, service)
    return (line.model, line.draft) if line is not None else None


class Preflights:
    """Of all slots of a console. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, _Known] = {}

    async def run(
        self,
        watch: HostWatch,
        service: Service,
        profile: Profile,
        profiles: Mapping[str, Profile],
        limit: float = LIMIT_S,
        fresh: float = 0.0,
    ) -> Preflight:
        """All of it. Never raises for the host: a part that cannot be known says why and blocks nothing.

        limit: seconds for build and models. fresh: age in seconds up to which they need not be read again.
        """
        began = self._clock()
        try:
            await watch.link.ready("check")
        except HostError as error:
            return Preflight(service.key, profile.name, tuple(checks.own(watch.snapshot(), error)))
        reading = asyncio.ensure_future(self.read(watch, service, profile, fresh))
        try:
            asked, failed = checks.slot(watch.host, service, self.fitted(service.key, profile), profiles)
            if failed is not None:
                # Only the build can tell how it spells what is intended.
                await asyncio.wait([reading], timeout=limit)
                asked, failed = checks.slot(watch.host, service, self.fitted(service.key, profile), profiles)
            found = await checks.ask(watch.commands, watch.snapshot(), [asked])
            await asyncio.wait([reading], timeout=max(0.0, limit - (self._clock() - began)))
            late = Check("build", "unknown", f"not known, because it was not read within {limit:g} s", "check again")
            unknown = reading.result() if reading.done() else [late]
        finally:
            reading.cancel()
        here = [replace(c, name=c.name.removeprefix(f"{service.name}: ")) for c in found.checks]
        known = self._known.setdefault(service.key, _Known())
        marks, estimate = self.forecast(watch, service, profile, found.gpus)
        asked_for = any(c.name == "requirements" for c in here)
        judged = self.judged(service.key, marks, estimate, asked_for)
        refused = verdicts.plugin(self.fitted(service.key, profile))
        more = [*([failed] if failed is not None else []), *refused, *unknown, *judged]
        took = self._clock() - began
        return Preflight(service.key, profile.name, (*here, *more), known.build, marks, estimate, took)

    async def host(self, watch: HostWatch, service: str, profiles: Mapping[str, Profile]) -> Sequence[Check]:
        """All checks of a host ('' for all its services) with their current profiles; names begin with the service."""
        try:
            await watch.link.ready("check")
        except HostError as error:
            return checks.own(watch.snapshot(), error)
        services = [s for s in watch.host.services if service in ("", s.name)]
        known = [(s, profiles[s.profile]) for s in services if s.profile in profiles]
        reading = asyncio.gather(*(self.read(watch, s, p) for s, p in known))
        try:
            answer = await checks.run(watch.commands, watch.host, watch.snapshot(), services, profiles)
            unknown = await reading
        finally:
            reading.cancel()
        found = list(answer.checks)
        for (one, profile), more in zip(known, unknown, strict=True):
            marks, estimate = self.forecast(watch, one, profile, answer.gpus)
            asked_for = any(c.name == f"{one.name}: requirements" for c in answer.checks)
            refused = verdicts.plugin(self.fitted(one.key, profile))
            said = [*refused, *more, *self.judged(one.key, marks, estimate, asked_for)]
            found += [replace(c, name=f"{one.name}: {c.name}") for c in said]
        return found

    async def read(self, watch: HostWatch, service: Service, profile: Profile, fresh: float = 0.0) -> Sequence[Check]:
        """Reads the slot's build and models, and keeps them; checks of what cannot be known.

        fresh: what was read of that very interpreter and models up to so many seconds ago stands.
        """
        whose, which = _interpreter(profile), _models(profile, service)
        known = self._known.get(service.key)
        if known is not None and (known.asked, known.models) == (whose, which) and self._clock() - known.at < fresh:
            return known.unknown
        (build, no_build), (facts, no_facts) = await asyncio.gather(
            told("build", builds.inspect(watch.commands, profile), Build()),
            told("memory", memory.facts(watch.commands, service, profile), None),
        )
        unknown = tuple(c for c in (no_build, no_facts) if c is not None)
        gpus = known.gpus if known is not None else GpuReport()
        self._known[service.key] = _Known(build, whose, facts, gpus, which, self._clock(), unknown)
        return unknown

    def judged(
        self, key: str, marks: Sequence[FlagMark], estimate: Estimate | None, asked_for: bool = False
    ) -> list[Check]:
        """What was read of a slot, as checks. asked_for: its requirements are among the host's checks."""
        known = self._known.get(key, _Known())
        build = known.build
        # a model that could not be asked for is said once
        said = verdicts.memory(estimate) if known.facts is not None else []
        # the host's own check of all requirements says more than the engine's pins
        pins = [] if asked_for else verdicts.pins(build)
        return [*verdicts.flags(marks, build), *said, *pins, *verdicts.patched(build), *verdicts.problems(build)]

    def forecast(
        self, watch: HostWatch, service: Service, profile: Profile, gpus: GpuReport | None = None
    ) -> tuple[tuple[FlagMark, ...], Estimate | None]:
        """Marks and memory of an edited profile, from what the last preflight of the slot read. Pure and at once.

        gpus: as a check just read them; the watcher's report else.
        """
        known = self._known.get(service.key)
        if known is None:
            return (), None
        known.gpus = gpus or known.gpus
        live, build = watch.snapshot().gpus, known.build_of(profile)
        report = live if live.gpus and gpus is None else known.gpus
        estimate: Estimate | None
        try:
            estimate = memory.estimate(service, profile, known.facts, report, build.release)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # a config.json may hold anything; the rest of the preflight is worth no less for it
            estimate = Estimate(problems=(f"not known, because {type(error).__name__}: {error}",))
        return builds.flag_marks(profile, build), estimate

    def fitted(self, key: str, profile: Profile) -> Profile:
        """The profile with its intent as the slot's build spells it, as far as that was read; else as it is."""
        known = self._known.get(key)
        try:
            return builds.fit(profile, known.build_of(profile)) if known is not None else profile
        except DialectError:
            return profile

    def flags(self, key: str, profile: Profile) -> tuple[str, ...]:
        """Options of the profile's build as far as that was read, aliases too; () where they are not known."""
        known = self._known.get(key)
        build = known.build_of(profile) if known is not None else Build()
        return tuple(dict.fromkeys(n for f in build.flags if not f.refused for n in (f.name, *f.aliases)))

    async def gate(
        self, watch: HostWatch, service: Service, profile: Profile, profiles: Mapping[str, Profile]
    ) -> tuple[Check, ...]:
        """Checks that refuse this deployment, asked now: a port or a GPU can be taken in a second.

        () also where the host cannot be checked: its own refusal comes with the plan.
        """
        began = self._clock()
        found = await self.run(watch, service, profile, profiles, GATE_S, FRESH_S)
        refusing = tuple(c for c in found.failed if c.name not in OWN)
        if refusing and self._known.get(service.key, _Known()).at < began:
            # nothing is refused for what was so a minute ago
            found = await self.run(watch, service, profile, profiles, GATE_S)
            refusing = tuple(c for c in found.failed if c.name not in OWN)
        return refusing


async def told(name: str, work: Awaitable[T], otherwise: T) -> tuple[T, Check | None]:
    """(what it gives, None), or (otherwise, a check that says why it is not known)."""
    try:
        return await work, None
    except HostError as error:
        return otherwise, Check(name, "unknown", f"not known, because {error.cause}", error.next_step)
