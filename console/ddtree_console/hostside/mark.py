"""How far a transaction got, in /run: recovery reads it even when the disk took no event. Gone after a reboot."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ddtree_console.hostside import durable
from ddtree_console.hostside.roots import Roots


@dataclass(frozen=True)
class Mark:
    """touched: something was stopped. stage: trial | commit | back. release: rN being started, or its name.

    main: the key that was asked for (new, way-back, rN, ..). trying: the key being started. tried: keys and releases
    that failed. invocation, main_pid, secs: of the start that passed its ladder. before: the release committed when it
    began. requested: where an operator asked to go back to. outcome: '' while none is recorded.
    """

    tx: str = ""
    touched: bool = False
    stage: str = "trial"
    release: str = ""
    main: str = ""
    trying: str = ""
    tried: tuple[str, ...] = ()
    invocation: str = ""
    main_pid: int = 0
    secs: Mapping[str, float] = field(default_factory=dict)
    before: str = ""
    requested: str = ""
    outcome: str = ""
    boot: str = ""
    began: float = 0.0
    began_wall: float = 0.0


def _path(roots: Roots, unit: str) -> Path:
    return roots.live(unit) / "mark.json"


def read(roots: Roots, unit: str) -> Mark:
    """The mark of the newest transaction of this boot, or an empty one."""
    raw = durable.read_json(_path(roots, unit))
    if isinstance(raw.get("tried"), list):
        raw["tried"] = tuple(str(name) for name in raw["tried"])
    plain = Mark()
    known: dict[str, Any] = {}
    for field_ in fields(Mark):
        value, kind = raw.get(field_.name), type(getattr(plain, field_.name))
        if isinstance(value, kind) or (kind is float and isinstance(value, int)):
            known[field_.name] = value
    return Mark(**known)


def write(roots: Roots, unit: str, mark: Mark) -> None:
    """Replaces the mark. OSError only when /run itself refuses."""
    durable.write_json(_path(roots, unit), asdict(mark))


def change(roots: Roots, unit: str, mark: Mark, **new: Any) -> Mark:
    """The mark with those fields changed, also in /run as far as that takes it."""
    changed = replace(mark, **new)
    with contextlib.suppress(OSError):
        write(roots, unit, changed)
    return changed
