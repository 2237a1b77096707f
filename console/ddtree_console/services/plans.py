"""Plans for a host's transaction, rendered from profiles: pure, given the fleet and the profiles on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddtree_console.domain.engines import plugin, registry
from ddtree_console.domain.engines.base import DialectError
from ddtree_console.domain.plan import Candidate, Plan
from ddtree_console.domain.render import RenderedUnit, render_unit
from ddtree_console.domain.spec import Fleet, Profile, Service
from ddtree_console.services.errors import HostError
from ddtree_console.services.plugin import equipped
from ddtree_console.services.wire import profile_json


@dataclass(frozen=True)
class Operator:
    """Who acts. who: user@machine; origin: where from."""

    who: str
    origin: str = ""


@dataclass(frozen=True)
class Choice:
    """What the operator may say about a deployment."""

    on_failure: str = "back"
    hold: float | None = None
    reason: str = ""
    force: bool = False
    takeover: bool = False


def find_profile(profiles: Mapping[str, Profile], service: Service, profile: str | Profile) -> Profile:
    """The profile itself or the one of that name; HostError(2) names those that exist."""
    if isinstance(profile, Profile):
        return profile
    name = profile or service.profile
    if name in profiles:
        return profiles[name]
    known = ", ".join(sorted(profiles)) or "none"
    raise HostError(service.key, "deploy", f"no profile {name!r}", f"profiles: {known}", 2)


def render(profile: Profile, service: Service) -> RenderedUnit:
    """The unit of that profile in that slot; HostError(2) where the intent has no spelling or a value cannot be."""
    try:
        made = equipped(profile) if plugin.needed(profile) else profile
        return render_unit(made, service, registry.get(profile.engine))
    except (DialectError, ValueError, KeyError) as error:
        cause = str(error.args[0] if error.args else error)
        raise HostError(service.key, f"render {profile.name}", cause, "change the profile", 2) from error


def candidate(profile: Profile, service: Service) -> Candidate:
    """The profile as a unit that the host may start in the slot."""
    unit = render(profile, service)
    return Candidate(
        unit_text=unit.text,
        profile_name=profile.name,
        profile=profile_json(profile),
        engine=profile.engine,
        secrets=dict(unit.secrets),
        set_flags=dict(unit.set_flags),
        must=tuple(profile.must),
    )


class Planner:
    """Builds plans of one fleet for one operator. rules: the operator's own, for the engine of findings."""

    def __init__(self, fleet: Fleet, operator: Operator, rules: Sequence[Mapping[str, Any]] = ()) -> None:
        self.fleet, self.operator, self._rules = fleet, operator, tuple(rules)

    def _way_back(self, service: Service, profiles: Mapping[str, Profile]) -> dict[str, Any]:
        if service.fallback_service:
            other = self.fleet.service(f"{service.host}/{service.fallback_service}")
            profile = profiles.get(other.profile)
            return {
                "way_back_service": other.unit,
                "way_back_service_port": other.port,
                "way_back_service_engine": profile.engine if profile is not None else "generic",
            }
        if service.fallback and service.fallback in profiles:
            return {"way_back": candidate(profiles[service.fallback], service)}
        return {}

    def _shared(self, service: Service) -> tuple[str, ...]:
        mine = set(service.gpus)
        others = self.fleet.host(service.host).services
        return tuple(o.unit for o in others if o.unit != service.unit and mine & set(o.gpus))

    def _common(self, service: Service, profiles: Mapping[str, Profile]) -> dict[str, Any]:
        return {
            "unit": service.unit,
            "service": service.name,
            "port": service.port,
            "gpus": service.gpus,
            "shared_gpu_units": self._shared(service),
            "deadline": service.deadline_s,
            "boot": service.boot,
            "who": self.operator.who,
            "origin": self.operator.origin,
            "rules": self._rules,
            **self._way_back(service, profiles),
        }

    def deploy(
        self,
        service: Service,
        profile: Profile,
        profiles: Mapping[str, Profile],
        choice: Choice,
        build_flags: tuple[str, ...] = (),
    ) -> Plan:
        """A new release of `profile` on trial. build_flags: options of its build, () where they are not known."""
        return Plan(
            what="deploy",
            to="new",
            new=candidate(profile, service),
            on_failure=choice.on_failure,
            hold=service.hold_s if choice.hold is None else choice.hold,
            reason=choice.reason,
            force=choice.force,
            takeover=choice.takeover,
            build_flags=build_flags,
            **self._common(service, profiles),
        )

    def rollback(self, service: Service, to: str, profiles: Mapping[str, Profile], takeover: bool) -> Plan:
        """Back to what the host keeps: way-back, known-good or rN. No gate of a deployment stands in its way."""
        try:
            common = self._common(service, profiles)
        except HostError:
            # The way back cannot be rendered now; the host keeps the one of the last deployment.
            common = self._common(service, {})
        return Plan(what="rollback", to=to, hold=service.hold_s, takeover=takeover, **common)

    def failure_words(self, service: Service, committed: str, on_failure: str) -> str:
        """What happens when a deployment fails, in a few words."""
        if on_failure == "leave":
            return "left as it is"
        if on_failure == "stop":
            return "the unit is stopped"
        way = service.fallback or (f"service {service.fallback_service}" if service.fallback_service else "")
        targets = [x for x in (committed, way) if x]
        return ", then ".join(targets) if targets else "the unit is stopped: no known good, no way back"
