"""What a console asks a host to do; `submit` writes it to /run/ddtree-console/UNIT/plan.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SECRET_ENV = "@DDTREE_SECRET_ENV@"
"""In a unit text: stands for the path of this release's secret.env, which only the host knows (it numbers releases)."""


@dataclass(frozen=True)
class Candidate:
    """One unit that may be started in the slot.

    release: rN of a kept release, '' for a new one (the transaction numbers it). profile: JSON of the profile.
    secrets: KEY -> name of the entry in the host's secrets file. engine: whose ladder reads its log.
    set_flags: the flags the operator set (dash names -> value), compared with the effective ones when ready.
    """

    unit_text: str
    profile_name: str = ""
    profile: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "sglang"
    release: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict)
    set_flags: Mapping[str, Any] = field(default_factory=dict)
    must: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A whole transaction. Times in seconds. to: new | way-back | known-good | rN (what: deploy | rollback)."""

    what: str
    unit: str
    service: str
    port: int
    gpus: tuple[int, ...] = ()
    to: str = "new"
    new: Candidate | None = None
    way_back: Candidate | None = None
    way_back_service: str | None = None
    """unit name of the other slot (fallback_service): stop this one, confirm that one."""
    way_back_service_port: int = 0
    way_back_service_engine: str = "sglang"
    shared_gpu_units: tuple[str, ...] = ()
    """units of this fleet's other slots that share GPUs with this one."""
    on_failure: str = "back"
    hold: float = 20.0
    deadline: float = 600.0
    boot: bool = True
    force: bool = False
    reason: str = ""
    who: str = ""
    origin: str = ""
    takeover: bool = False
    rules: tuple[Mapping[str, Any], ...] = ()
    build_flags: tuple[str, ...] = ()
    """options of the build that the new release starts (dash names, aliases too), () where they are not known."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)


def candidate_from_json(raw: Any) -> Candidate | None:
    """The candidate in that JSON, None when it is no object."""
    if not isinstance(raw, dict):
        return None
    return Candidate(
        unit_text=str(raw.get("unit_text", "")),
        profile_name=str(raw.get("profile_name", "")),
        profile=dict(raw.get("profile") or {}),
        engine=str(raw.get("engine", "sglang")),
        release=str(raw.get("release", "")),
        secrets=dict(raw.get("secrets") or {}),
        set_flags=dict(raw.get("set_flags") or {}),
        must=tuple(raw.get("must") or ()),
    )


def plan_from_json(raw: Mapping[str, Any]) -> Plan:
    """The plan in that JSON; KeyError or ValueError name what is missing. Unknown keys are ignored."""
    known = {f: raw[f] for f in Plan.__dataclass_fields__ if f in raw}
    known["new"], known["way_back"] = candidate_from_json(raw.get("new")), candidate_from_json(raw.get("way_back"))
    for name in ("gpus", "shared_gpu_units", "rules", "build_flags"):
        known[name] = tuple(raw.get(name) or ())
    for name in ("what", "unit", "service", "port"):
        if name not in raw:
            raise KeyError(name)
    return Plan(**known)
