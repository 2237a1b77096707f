"""What the console asked the watcher to watch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Slot:
    """One service. probe: the watcher asks its model info itself."""

    service: str
    unit: str
    port: int
    gpus: tuple[int, ...] = ()
    engine: str = "generic"
    probe: bool = False


@dataclass(frozen=True)
class Config:
    """Slots and intervals in seconds."""

    slots: tuple[Slot, ...] = ()
    gpu_interval: float = 2.0
    unit_interval: float = 1.0
    http_interval: float = 2.0

    @property
    def units(self) -> tuple[str, ...]:
        """Each unit once, in order."""
        return tuple(dict.fromkeys(slot.unit for slot in self.slots))


def slot(raw: Mapping[str, Any]) -> Slot | None:
    """A slot, or None where service, unit or port are missing or odd; a unit is a plain name, never an option."""
    service, unit, port = raw.get("service"), raw.get("unit"), raw.get("port")
    if not (isinstance(service, str) and isinstance(unit, str) and isinstance(port, int)):
        return None
    if not is_unit(unit) or not 0 < port < 65536:
        return None
    gpus = raw.get("gpus")
    return Slot(
        service,
        unit,
        port,
        tuple(g for g in gpus if isinstance(g, int)) if isinstance(gpus, (list, tuple)) else (),
        str(raw.get("engine") or "generic"),
        bool(raw.get("probe")),
    )


def is_unit(name: object) -> bool:
    """Whether it may be a unit's name: it also names folders below our roots."""
    return isinstance(name, str) and 0 < len(name) < 256 and name[0] not in "-." and not set(name) & set("/\n\0 ")


def interval(raw: Any, default: float) -> float:
    """Seconds within reason."""
    return min(60.0, max(0.2, float(raw))) if isinstance(raw, (int, float)) and raw == raw else default


def config(raw: Mapping[str, Any]) -> Config:
    """The configuration in a message; odd slots are left out."""
    services = raw.get("services")
    slots = [slot(s) for s in services if isinstance(s, dict)] if isinstance(services, list) else []
    return Config(
        tuple(s for s in slots if s is not None),
        interval(raw.get("gpu_interval"), 2.0),
        interval(raw.get("unit_interval"), 1.0),
        interval(raw.get("http_interval"), 2.0),
    )
