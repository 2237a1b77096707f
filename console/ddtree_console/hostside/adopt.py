"""`adopt`: keeps a unit as it is on disk as a release, so that the slot has something to go back to."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddtree_console.domain.plan import Candidate, candidate_from_json
from ddtree_console.hostside import durable, kept, locks, releases, unitctl
from ddtree_console.hostside.hostclock import Clock
from ddtree_console.hostside.reply import refuse, say
from ddtree_console.hostside.roots import Roots


def keep_as_it_is(
    roots: Roots, unit: str, state: releases.State, engine: str, made: Mapping[str, Any]
) -> releases.State:
    """The state with what lies in /etc kept and committed, drop-ins as they are. Saves nothing. OSError."""
    text = durable.read_text(roots.committed(unit))
    changed = replace(state, drop_ins=releases.drop_ins(roots, unit))
    if text is None or text == kept.unit_text(roots, unit, state.committed):
        return changed
    candidate = Candidate(unit_text=text, profile_name="as it was", profile={"verbatim": text}, engine=engine)
    return with_adopted(changed, kept.keep(roots, unit, candidate, made, reuse=True).release, unit, made)


def with_adopted(state: releases.State, release: str, unit: str, made: Mapping[str, Any]) -> releases.State:
    """The state with that release committed. A unit that runs counts as held, one that failed as failed."""
    now = unitctl.show(unit)
    changed = state.with_commit(release, {}, float(made.get("wall") or 0.0))
    bad = now.active == "failed" or now.sub == "auto-restart" or now.restarts > 0
    return changed.with_failed(release) if bad else changed


def adopt(roots: Roots, raw: Mapping[str, Any], clock: Clock) -> str:
    """The release kept. Refused, locks.Busy, OSError, KeyError."""
    unit = str(raw["unit"])
    origin = roots.committed(unit)
    if not origin.exists():
        origin = Path(unitctl.show(unit).fragment or origin)
    text = durable.read_text(origin)
    if text is None:
        raise unitctl.Refused("other", f"there is no unit {unit}", "give the name that systemctl knows it by")
    if roots.trial(unit).exists():
        raise unitctl.Refused("other", f"{unit} runs on trial, uncommitted", "deploy or roll back first")
    made = {"who": str(raw.get("who") or ""), "wall": round(clock.wall(), 3), "tx": "", "origin": str(origin)}
    profile = raw.get("profile") or {}
    candidate = Candidate(
        unit_text=text,
        profile_name=str(raw.get("profile_name") or unit),
        profile=profile,
        engine=str(raw.get("engine") or "generic"),
    )
    info = {"who": made["who"], "from": "", "why": f"adopt {unit}", "since": made["wall"], "tx": ""}
    held = locks.acquire(roots, unit, (), info, clock)
    try:
        release = kept.keep(roots, unit, candidate, made, reuse=True).release
        way_back = candidate_from_json(raw.get("way_back"))
        if way_back is not None:
            said = unitctl.verify(roots, unit, kept.text_at(way_back, kept.way_back_folder(roots, unit)))
            if said:
                raise unitctl.Refused(
                    "verify-failed", f"way back: systemd-analyze verify: {said}", "correct its profile"
                )
            kept.keep_way_back(roots, unit, way_back, made)
        state = replace(releases.load(roots, unit), drop_ins=releases.drop_ins(roots, unit))
        releases.save(roots, unit, with_adopted(state, release, unit, made))
    finally:
        held.release()
    return release


def main(roots: Roots, args: list[str]) -> int:
    """`adopt`: the request on stdin, the release on stdout."""
    try:
        raw = json.loads(sys.stdin.buffer.read())
        return say({"ok": True, "release": adopt(roots, raw, Clock())})
    except (ValueError, KeyError, TypeError) as error:
        return refuse(2, f"adopt: bad request: {error}", "use a console of this version")
    except locks.Busy as busy:
        return refuse(6, str(busy), "wait until it ends", holder=busy.holder)
    except unitctl.Refused as error:
        return refuse(7, error.cause, error.next_step)
    except OSError as error:
        refused = unitctl.disk_refused(error, str(error.filename or roots.var))
        return refuse(7, refused.cause, refused.next_step)
