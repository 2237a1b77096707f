"""Profiles as a host keeps them: what an attempt was made of, saved here or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtree_console.domain.spec import Profile
from ddtree_console.services.wire import mapping, profile_of


def profile(read: Mapping[str, Any], release: str) -> Profile | None:
    """The profile that made this release, from the host's `read` answer; None where it keeps none."""
    releases = read.get("releases")
    for row in releases if isinstance(releases, list) else []:
        kept = mapping(row)
        if release and kept.get("release") == release and kept.get("profile"):
            return profile_of(mapping(kept["profile"]), str(kept.get("profile_name") or release))
    return None
