"""Can a slot's unit and its way back be started: do they verify, and are their programs there?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ddtree_console.domain import quoting, unitfile
from ddtree_console.domain.plan import SECRET_ENV
from ddtree_console.domain.snapshot import UnitState
from ddtree_console.hostside import durable, kept, secret_env, systemctl, unitctl
from ddtree_console.hostside.roots import Roots

Look = tuple[str, str, str]  # state, evidence, remedy


def program(text: str) -> str:
    """The first program of ExecStart, '' where there is none."""
    for value in unitfile.parse(text).values("Service", "ExecStart"):
        for word in quoting.words(value):
            return quoting.unquote_arg(word)[0].lstrip("@-:+!")
    return ""


def not_startable(text: str) -> str:
    """Why its program cannot be run; '' when it can."""
    path = program(text)
    if not path:
        return "no ExecStart"
    if not path.startswith("/"):
        return ""
    if not Path(path).exists():
        return f"{path} does not exist"
    return "" if os.access(path, os.X_OK) else f"{path} is not executable"


def verified(roots: Roots, unit: str, text: str, path: str) -> str:
    """systemd-analyze's words; '' for none. Only root may lay down a text for it; others verify the file on disk."""
    if os.geteuid() == 0 or not path:
        return unitctl.verify(roots, unit, text)
    done = systemctl.run(["systemd-analyze", "verify", "--man=no", path], 30)
    said = done.err.decode("utf-8", "replace").splitlines()
    return "; ".join([line for line in said if path in line or unit in line][:3])


def unit(roots: Roots, name: str, now: UnitState) -> Look:
    """The unit as systemd loads it."""
    if now.load == "not-found" or not now.fragment:
        return "warn", f"{name} is not on this host", "deploy it, or correct `unit` in the fleet file"
    text = durable.read_text(Path(now.fragment))
    if text is None:
        return "unknown", f"{now.fragment} cannot be read", "check as root"
    try:
        problem = verified(roots, name, text, now.fragment)
    except OSError as error:
        return "unknown", f"cannot verify: {error.strerror or error}", "make room in /run"
    if problem:
        return "fail", problem, f"correct {now.fragment}"
    missing = not_startable(text)
    if missing:
        return "fail", missing, "install it, or correct the profile"
    if now.need_reload:
        return "warn", f"{now.fragment} changed since systemd read it", "systemctl daemon-reload"
    return "ok", f"{now.fragment} verifies", ""


def planned(roots: Roots, name: str, now: UnitState, text: str, profile: str) -> Look:
    """The unit that a deployment of `profile` would put on trial, beside what is on the host."""
    text = text.replace(SECRET_ENV, str(kept.way_back_folder(roots, name) / "secret.env"))
    missing = not_startable(text)
    if missing:
        return "fail", f"{profile}: {missing}", "install it, or correct the profile"
    if os.geteuid() != 0 and not roots.path:
        return "unknown", f"{profile}: only root can verify a unit that is not on disk", "check as root"
    try:
        problem = unitctl.verify(roots, name, text)
    except OSError as error:
        return "unknown", f"cannot verify: {error.strerror or error}", "make room in /run"
    if problem:
        return "fail", f"{profile}: {problem}", "correct the profile"
    if now.need_reload:
        return "warn", f"{now.fragment} changed since systemd read it", "systemctl daemon-reload"
    return "ok", f"the unit of {profile} verifies", ""


def secrets(roots: Roots, wanted: Mapping[str, str]) -> Look:
    """The entries that a profile names are in the host's secrets file. wanted: variable -> entry."""
    try:
        secret_env.content(roots, wanted)
    except secret_env.Missing as error:
        return "fail", str(error), f"add it to {roots.secrets()} (0600, root)"
    return "ok", f"{', '.join(sorted(set(wanted.values())))}: there", ""


def way_back(roots: Roots, name: str, now: UnitState) -> Look:
    """The kept way back: the unit itself, or another slot's."""
    about = durable.read_json(kept.way_back_folder(roots, name) / "profile.json")
    label = str(about.get("name") or "")
    if not label:
        return "warn", "none is kept", "name `fallback` in the fleet file, then adopt or deploy"
    if about.get("service"):
        return other_service(label)
    candidate = kept.read_way_back(roots, name)
    if candidate is None:
        return "fail", f"{label}: its unit is not kept", "deploy or adopt again"
    missing = not_startable(candidate.unit_text)
    if missing:
        return "fail", f"{label}: {missing}", "install it on this host"
    if os.geteuid() != 0:
        return "unknown", f"{label}: kept, its program exists; only root can verify it", "check as root"
    try:
        problem = unitctl.verify(roots, name, candidate.unit_text)
    except OSError as error:
        return "unknown", f"{label}: cannot verify: {error.strerror or error}", "make room in /run"
    return ("fail", f"{label}: {problem}", "correct that profile") if problem else ("ok", f"{label}: startable", "")


def other_service(unit_name: str) -> Look:
    """A way back that is another slot: it must be able to serve."""
    try:
        other = systemctl.show([unit_name]).get(unit_name) or UnitState(unit_name)
    except OSError as error:
        return "unknown", str(error), "see systemctl on the host"
    if other.load != "loaded":
        return "fail", f"{unit_name} is {other.load or 'unknown'}", "install that service"
    return "ok", f"{unit_name} is {other.active}", ""
