"""Engines by name."""

from __future__ import annotations

from typing import Any

from ddtree_console.domain.engines.base import Command, Engine
from ddtree_console.domain.spec import Profile, Service

NAMES = ("sglang", "wrapper", "generic")


def get(name: str) -> Engine:
    """The engine of that name; KeyError names it and those that exist."""
    from ddtree_console.domain.engines import sglang

    classes = {"sglang": sglang.SglangEngine, "wrapper": sglang.WrapperEngine, "generic": sglang.GenericEngine}
    if name not in classes:
        raise KeyError(f"engine {name!r} is none of {', '.join(NAMES)}")
    return classes[name]()


def launch_flags(profile: Profile) -> tuple[dict[str, Any], dict[str, str]]:
    """(flags, environment) of a profile with its intent spelled out; DialectError when it has no spelling."""
    from ddtree_console.domain.engines import generic, sglang_launch, wrapper

    makers = {"sglang": sglang_launch.launch_flags, "wrapper": wrapper.launch_flags, "generic": generic.launch_flags}
    return makers[profile.engine](profile)


def command(profile: Profile, service: Service) -> Command:
    """The profile's launch in this slot; ValueError (DialectError) says why it has none."""
    from ddtree_console.domain.engines import generic, sglang_launch, wrapper

    makers = {"sglang": sglang_launch.command, "wrapper": wrapper.command, "generic": generic.command}
    return makers[profile.engine](profile, service)
