"""The DDTree plug-in of stock SGLang: which profiles take it, its folder on PYTHONPATH, what it refuses. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ddtree_console.domain.engines import dialects
from ddtree_console.domain.engines.base import DialectError
from ddtree_console.domain.spec import Profile, Secret

OPT = "/opt/ddtree-console"
"""where a host keeps what a service's own user must read: OPT/HASH."""
PATH = "PYTHONPATH"
_REFUSED: tuple[tuple[tuple[str, ...], str], ...] = (
    (("tp-size", "tp", "tensor-parallel-size"), "tensor parallel"),
    (("dp-size", "dp", "data-parallel-size"), "data parallel"),
    (("pp-size", "pp", "pipeline-parallel-size"), "pipeline parallel"),
    (("page-size",), "pages of more than one token"),
)
_BACKENDS = ("attention-backend", "prefill-attention-backend", "decode-attention-backend")


def needed(profile: Profile) -> bool:
    """Whether its launch takes the plug-in: kind ddtree in the plug-in's dialect."""
    intent = profile.speculative
    if profile.engine != "sglang" or intent is None or intent.kind != "ddtree":
        return False
    try:
        return dialects.find(profile.dialect).name.startswith("plugin-")
    except DialectError:
        return False


def equipped(profile: Profile, digest: str) -> Profile:
    """The profile whose unit finds the plug-in: OPT/DIGEST first in its PYTHONPATH, in place of an older one.

    DialectError where PYTHONPATH is a secret, whose value only the host knows.
    """
    before = profile.env.get(PATH, "")
    if isinstance(before, Secret):
        raise DialectError(f"{PATH} is the secret {before.name}: the plug-in's folder cannot be put in front of it")
    others = [part for part in before.split(":") if part and not part.startswith(f"{OPT}/")]
    return replace(profile, env={**profile.env, PATH: ":".join([f"{OPT}/{digest}", *others])})


def _over_one(value: Any) -> bool:
    try:
        return float(value) > 1
    except (TypeError, ValueError):
        return False


def refusals(profile: Profile, flags: Mapping[str, Any]) -> tuple[str, ...]:
    """What the plug-in is known to refuse of these flags, so that the start would end in its one line."""
    if not needed(profile):
        return ()
    said = [
        f"the DDTree plug-in refuses {words}: --{name} {flags[name]}"
        for names, words in _REFUSED
        for name in names
        if _over_one(flags.get(name))
    ]
    given = {name: str(flags[name]) for name in _BACKENDS if flags.get(name)}
    wrong = [f"--{name} {value}" for name, value in given.items() if value != "triton"]
    if wrong:
        said.append(f"the DDTree plug-in refuses {', '.join(wrong)}: only triton applies a tree's mask")
    for name in ("enable-lora", "enable-dp-attention"):
        if flags.get(name):
            said.append(f"the DDTree plug-in refuses --{name}")
    return tuple(said)


def doubts(profile: Profile, flags: Mapping[str, Any]) -> tuple[str, ...]:
    """What it refuses on some GPUs."""
    if not needed(profile) or any(flags.get(name) for name in _BACKENDS):
        return ()
    return ("without --attention-backend triton a Hopper GPU gets fa3, which the DDTree plug-in refuses",)


def warnings(profile: Profile, flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Refusals and doubts."""
    return (*refusals(profile, flags), *doubts(profile, flags))
