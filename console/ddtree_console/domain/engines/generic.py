"""Any other server: its command as given. Only the slot's port is put where the command names one."""

from __future__ import annotations

from typing import Any

from ddtree_console.domain.engines.base import Command, FlagHelp
from ddtree_console.domain.engines.sglang_launch import common_warnings, flag_words
from ddtree_console.domain.spec import Profile, Service

FLAGS: tuple[FlagHelp, ...] = ()


def launch_flags(profile: Profile) -> tuple[dict[str, Any], dict[str, str]]:
    """The flags as the profile has them; they follow its command."""
    return dict(profile.flags), {}


def with_port(argv: tuple[str, ...], port: int) -> tuple[str, ...]:
    """argv with the value of its last `--port` replaced; as it is when it names none."""
    for i in range(len(argv) - 1, -1, -1):
        if argv[i].startswith("--port="):
            return (*argv[:i], f"--port={port}", *argv[i + 1 :])
        if argv[i] == "--port" and i + 1 < len(argv):
            return (*argv[: i + 1], str(port), *argv[i + 2 :])
    return argv


def command(profile: Profile, service: Service) -> Command:
    """The command of the profile; ValueError when it has none or asks for speculation, which only an engine knows."""
    if not profile.command:
        raise ValueError(f"profile {profile.name}: the generic engine needs command")
    if profile.speculative is not None and profile.speculative.kind != "none":
        raise ValueError(f"profile {profile.name}: the generic engine cannot spell speculation; write it in command")
    argv = (*profile.command, *flag_words(profile.flags), *profile.args)
    ported = with_port(argv, service.port)
    warnings = common_warnings(profile.flags, argv)
    if not any(word.split("=")[0] == "--port" for word in argv):
        warnings.append(f"the command names no --port: it must listen on {service.port} by itself")
    return Command(ported, {}, tuple(warnings))
