"""Is the way back rehearsed: its unit, interpreter and model still there, and when was it ready the last time?"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddtree_console.domain.snapshot import UnitState
from ddtree_console.hostside import (
    as_user,
    check_model,
    check_unit,
    durable,
    env_launch,
    history,
    kept,
    releases,
    systemctl,
)
from ddtree_console.hostside.roots import Roots

Look = tuple[str, str, str]  # state, evidence, remedy


def _walls(roots: Roots, unit: str, profile: str) -> list[float]:
    """When a release of that profile held, by what is kept and by the history."""
    state = releases.load(roots, unit)
    found = [
        held.get("wall")
        for name, held in state.held.items()
        if not profile or kept.profile_name(roots, unit, name) == profile
    ]
    for line in history.newest_first(roots, unit, 200):
        raw = json.loads(line)
        if raw.get("outcome") == "committed" and (not profile or raw.get("profile") == profile):
            seconds = raw.get("seconds")
            found.append((raw.get("wall") or 0) + (seconds if isinstance(seconds, (int, float)) else 0))
    return [float(wall) for wall in found if isinstance(wall, (int, float)) and wall > 0]


def last_ready(roots: Roots, unit: str, profile: str, now: float) -> str:
    """`last ready 3 h ago (2026-11-29 16:00)`, by the host's clock; '' for never."""
    walls = _walls(roots, unit, profile)
    if not walls:
        return ""
    newest = max(walls)
    past = max(0.0, now - newest)
    for size, word in ((86400, "days"), (3600, "h"), (60, "min")):
        if past >= 2 * size:
            ago = f"{past / size:.0f} {word} ago"
            break
    else:
        ago = "just now"
    return f"last ready {ago} ({time.strftime('%Y-%m-%d %H:%M', time.localtime(newest))})"


def gone(roots: Roots, text: str) -> tuple[str, str]:
    """(what of it is not there any more, what is not known) of a unit's interpreter and model."""
    missing = check_unit.not_startable(text)
    if missing or roots.path:
        # Where the roots are moved, models lie on another host than this one.
        return missing, ""
    about = env_launch.target(roots, text)
    if about.python and not Path(about.python).exists():
        return f"{about.python} does not exist", ""
    if not about.package:
        return "", ""

    def work() -> dict[str, Any]:
        env = {**about.env, "HOME": os.environ.get("HOME", "")}
        for what, path in (("model", about.model), ("draft", about.draft)):
            found = check_model.one(what, path, about, env, about.value("load-format") == "dummy")[0] if path else None
            if found is not None and found.state == "fail":
                return {"why": f"{what}: {found.evidence}"}
        return {"why": ""}

    try:
        return str(as_user.call(about.user, work, 2.0)["why"]), ""
    except as_user.NotKnown as error:
        return "", str(error)


def way_back(roots: Roots, unit: str, now: float, planned: Mapping[str, Any]) -> Look:
    """planned: {"name","unit_text"} that the next deployment keeps, {} to look at what is kept."""
    label, text = str(planned.get("name") or ""), str(planned.get("unit_text") or "")
    if planned.get("service"):
        other = str(planned["service"])
        return _service(roots, other, check_unit.other_service(other), now)
    if not text:
        state, evidence, remedy = check_unit.way_back(roots, unit, UnitState(unit))
        about = durable.read_json(kept.way_back_folder(roots, unit) / "profile.json")
        label, candidate = str(about.get("name") or ""), kept.read_way_back(roots, unit)
        if about.get("service"):
            return _service(roots, label, (state, evidence, remedy), now)
        if state not in ("ok", "unknown") or candidate is None:
            return state, evidence, remedy
        text = candidate.unit_text
    else:
        state, evidence, remedy = "ok", f"{label}: startable", ""
    missing, unknown = gone(roots, text)
    if missing:
        return "fail", f"{label}: {missing}", "install it on this host, or name another fallback"
    if state == "unknown":
        return state, evidence, remedy
    ready = last_ready(roots, unit, label, now)
    if unknown:
        return "unknown", f"{label}: not known, because {unknown}", "check as root"
    if not ready:
        return "warn", f"{evidence}, but was never ready in this slot", f"deploy {label} once, so that it is rehearsed"
    return state, f"{evidence}, {ready}", remedy


def _service(roots: Roots, other: str, look: Look, now: float) -> Look:
    state, evidence, remedy = look
    if state == "fail":
        return look
    try:
        shown = systemctl.show([other]).get(other) or UnitState(other)
    except OSError as error:
        return "unknown", str(error), "see systemctl on the host"
    missing, _ = gone(roots, durable.read_text(Path(shown.fragment)) or "") if shown.fragment else ("", "")
    if missing:
        return "fail", f"{other}: {missing}", "install it on this host"
    ready = last_ready(roots, other, "", now)
    if not ready and shown.active != "active":
        return "warn", f"{evidence}, and was never ready", "deploy it once, so that it is rehearsed"
    return state, f"{evidence}{f', {ready}' if ready else ''}", remedy
