"""The launch of the wrapper server (ddtree-wrapper): small, linear or tree, always able to come up."""

from __future__ import annotations

from typing import Any

from ddtree_console.domain.engines.base import Command, DialectError, FlagHelp
from ddtree_console.domain.engines.sglang_launch import DEFAULT_HOST, PYTHON, common_warnings, flag_words
from ddtree_console.domain.spec import Profile, Service, Speculative

MODULE = "ddtree_kernels.serve"
PROGRAM = "ddtree-wrapper"

FLAGS: tuple[FlagHelp, ...] = (
    FlagHelp("mem-fraction-static", "float", "share of memory for weights and KV pool", 0.05, 0.99),
    FlagHelp("context-length", "int", "longest prompt plus output in tokens; k and M are accepted", 1, 100_000_000),
    FlagHelp("disable-cuda-graph", "bool", "no captured graph at all"),
    FlagHelp("budget", "int", "tree nodes besides the root", 1, 1024),
    FlagHelp("spine", "bool", "the drafter's most probable chain is always in the tree"),
    FlagHelp("draft-temperature", "float", "of the drafter when the tree is built", 0.01, 100),
    FlagHelp("max-total-tokens", "int", "cap of the KV pool in tokens", 1, None),
    FlagHelp("max-queued-requests", "int", "requests that may wait; more are refused with 503", 0, None),
    FlagHelp("drain-seconds", "float", "longest wait for running requests at SIGTERM", 0, 3600),
)


def mode(intent: Speculative) -> str:
    """The wrapper's --mode for an intent; DialectError for a kind that is none."""
    if intent.kind == "none":
        return "autoregressive"
    if intent.kind == "linear" and not intent.shadow:
        return "linear"
    if intent.kind == "ddtree":
        return "shadow-linear" if intent.shadow else "ddtree"
    raise DialectError(f"the wrapper has no mode for {intent.kind}{' in shadow' if intent.shadow else ''}")


def intent_flags(intent: Speculative | None) -> dict[str, Any]:
    """The intent as the wrapper's flags; none stated leaves the mode to the wrapper's own default."""
    if intent is None:
        return {}
    flags: dict[str, Any] = {"mode": mode(intent)}
    if intent.budget is not None and intent.kind == "ddtree":
        flags["budget"] = intent.budget
    if intent.draft and intent.kind != "none":
        flags["draft"] = intent.draft
    return flags


def notifies(profile: Profile) -> bool:
    """Whether what this profile starts is our server, which tells systemd when it serves.

    A command of the profile's own may be any program.
    """
    command = profile.command
    return not command or command[-1].rpartition("/")[2] == PROGRAM or tuple(command[-2:]) == ("-m", MODULE)


def launch_flags(profile: Profile) -> tuple[dict[str, Any], dict[str, str]]:
    """(flags, environment) with the intent spelled out; flags that the profile states win."""
    return {**intent_flags(profile.speculative), **profile.flags}, {}


def command(profile: Profile, service: Service) -> Command:
    """The wrapper's launch in this slot; ValueError for a missing model or a bad intent."""
    if not profile.model:
        raise ValueError(f"profile {profile.name}: model is missing")
    flags, _ = launch_flags(profile)
    host = flags.pop("host", None) or DEFAULT_HOST
    flags.pop("port", None)
    start = profile.command or (profile.python or PYTHON, "-m", MODULE)
    argv = (
        *start, "--model", profile.model, *flag_words(flags), *profile.args,
        "--host", str(host), "--port", str(service.port),
    )  # fmt: skip
    return Command(argv, {}, tuple(common_warnings(flags, profile.args)))
