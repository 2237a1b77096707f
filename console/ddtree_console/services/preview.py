"""What a deployment would change: the rendering beside what the host has, runs and keeps. Nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtree_console.domain import adoption
from ddtree_console.domain.diff import diff_profiles, unified
from ddtree_console.domain.engines import registry
from ddtree_console.domain.secrets import is_secret_name, mask
from ddtree_console.domain.snapshot import HostSnapshot, ServiceSnapshot
from ddtree_console.domain.spec import Profile, Service
from ddtree_console.services import plans
from ddtree_console.services.api import DeployPreview, FieldDiff
from ddtree_console.services.wire import mapping, profile_of


def shown(value: Any) -> str:
    """A value as one word of a diff; '' where the flag is absent."""
    if value is True:
        return "on"
    if value is False or value is None:
        return ""
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def field_diffs(old: Profile | None, new: Profile) -> tuple[FieldDiff, ...]:
    """Changes from one profile to another, masked; () where there is no other."""
    if old is None:
        return ()
    return tuple(FieldDiff(c.where, c.name, mask(c.old), mask(c.new)) for c in diff_profiles(old, new))


def drop_ins(read: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The unit's drop-ins as (path, text)."""
    found = read.get("drop_ins")
    rows = [mapping(x) for x in found] if isinstance(found, list) else []
    return [(str(x.get("path", "")), str(x.get("text", ""))) for x in rows]


def running_profile(read: Mapping[str, Any]) -> Profile | None:
    """What the unit on the host starts: the committed release's own profile, else what its text says; None without."""
    committed = str(read.get("committed") or "")
    releases = read.get("releases")
    for row in releases if isinstance(releases, list) else []:
        kept = mapping(row)
        if committed and kept.get("release") == committed and not read.get("edited") and kept.get("profile"):
            return profile_of(mapping(kept["profile"]), str(kept.get("profile_name") or committed))
    text = str(read.get("text") or "")
    return adoption.adopt(text, drop_ins(read), "running").profile if text else None


def same(asked: Any, effective: Any) -> bool:
    """Whether a server's value is the one asked for, however each spells it."""
    if isinstance(asked, bool) or isinstance(effective, bool):
        return bool(asked) == bool(effective)
    try:
        return float(asked) == float(effective)
    except (TypeError, ValueError):
        return shown(asked) == shown(effective)


def running_diffs(
    profile: Profile, set_flags: Mapping[str, Any], base: Profile | None, info: Mapping[str, Any]
) -> tuple[FieldDiff, ...]:
    """Against what runs now: fields of the unit, and flags as the server itself says them where it was asked."""
    changes = {(c.where, c.name): c for c in field_diffs(base, profile)}
    effective = registry.get(profile.engine).effective(info) if info else {}
    for name, asked in set_flags.items():
        if is_secret_name(name):
            continue  # the server's value was masked as it came: there is nothing to compare
        if name in effective and not same(asked, effective[name]):
            changes[("flag", name)] = FieldDiff("flag", name, mask(shown(effective[name])), mask(shown(asked)))
    return tuple(changes.values())


def refusals(read: Mapping[str, Any], host: HostSnapshot, snapshot: ServiceSnapshot) -> tuple[tuple[str, ...], bool]:
    """Why the host would refuse, as far as can be told here, and whether a reason overrides all of it."""
    found, forceable = [], True
    if host.link == "unprivileged":
        found.append(host.error)
        forceable = False
    if snapshot.tx is not None and snapshot.tx.running:
        found.append(f"transaction {snapshot.tx.tx} of {snapshot.tx.who} runs")
        forceable = False
    elif snapshot.lock:
        found.append(f"locked by {snapshot.lock}")
        forceable = False
    edited = read.get("edited")
    if isinstance(edited, list) and edited:
        found.append(f"edited by hand on the host: {', '.join(map(str, edited))}")
    if snapshot.listener.state == "foreign":
        found.append(f"port taken by {snapshot.listener.command or 'another process'} (pid {snapshot.listener.pid})")
        forceable = False
    return tuple(found), forceable


def build(
    service: Service,
    profile: Profile,
    stored: Profile | None,
    read: Mapping[str, Any],
    host: HostSnapshot,
    snapshot: ServiceSnapshot,
    on_failure: str,
    more_warnings: Sequence[str] = (),
) -> DeployPreview:
    """The preview of `profile` in that slot; `read`: the host's answer to the read command. HostError(2) as render."""
    unit = plans.render(profile, service)
    why_not, forceable = refusals(read, host, snapshot)
    on_disk = str(read.get("text") or "")
    return DeployPreview(
        key=service.key,
        profile=profile.name,
        release_from=str(read.get("committed") or ("unmanaged" if on_disk else "")),
        unit_text=mask(unit.text),
        command=mask(unit.command),
        diff_running=running_diffs(profile, unit.set_flags, running_profile(read), snapshot.http.info),
        diff_stored=field_diffs(stored, profile),
        unit_diff=tuple(mask(line) for line in unified(on_disk, unit.text)),
        running_requests=snapshot.http.running,
        on_failure=on_failure,
        warnings=(*more_warnings, *unit.warnings, *(f"{path} on the host outranks this edit" for path in unit.masked)),
        refusals=why_not,
        forceable=forceable,
    )
