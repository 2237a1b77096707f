"""Chooses a recording for a launch: rules of conditions.yaml against host, engine and flags. Standard library, 3.9.

A host's python3 has no YAML reader, so this reads the part of YAML that the file uses: a list of flat maps of scalars.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

# forks add flags for their tree that no stock build knows
FORK_FLAGS = ("*ddtree*", "speculative-dflash-tree-verify")
SHORT_FLAGS = frozenset({"model", "tp", "dp", "pp", "ep"})
_RULE_KEYS = ("host", "engine", "recording", "freeze", "unknown-flag")
_BOUND = re.compile(r"(<=|>=|<|>)\s*([\d.]+)\Z")


@dataclass(frozen=True)
class Choice:
    """What to replay. unknown: words that argparse would not recognise."""

    recording: str
    freeze: bool = True
    unknown: tuple[str, ...] = ()


def read(text: str) -> list[dict[str, Any]]:
    """The rules; ValueError names the line that is no `key: scalar`."""
    rules: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.match(r"(- |  )([\w-]+): (.+?)\s*\Z", line)
        if match is None or (match.group(1) == "  " and not rules):
            raise ValueError(f"line {number}: not `- key: value` or `  key: value`: {line!r}")
        if match.group(1) == "- ":
            rules.append({})
        raw = match.group(3)
        value: Any = raw
        if raw in ("true", "false"):
            value = raw == "true"
        elif raw[0] in "\"'" and raw[-1] == raw[0] and len(raw) > 1:
            value = raw[1:-1]
        rules[-1][match.group(2)] = value
    return rules


def _recordings() -> Any:
    """The recordings' reader, found by its place: this folder may have been copied away from its package."""
    path = Path(__file__).resolve().parent / "recordings" / "__init__.py"
    spec = importlib.util.spec_from_file_location("_conditions_recordings", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is missing")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def usage_of_build() -> str:
    """What the recorded build's argparse said of itself, up to its error."""
    return "\n".join(_recordings().load("invalid-choice").text())


def known_flags(usage: str) -> frozenset[str]:
    """Flags of the recorded build, without dashes: those of its own usage text, which names one spelling of each, and
    the fields of its arguments, after which the other spellings are named (--tp-size beside --tensor-parallel-size)."""
    body = usage[usage.index("usage:") : usage.index("error:")]
    fields = _recordings().load("dflash-healthy").responses["/server_info"][1]
    return frozenset(re.findall(r"--([a-z0-9][a-z0-9_-]*)", body)) | {f.replace("_", "-") for f in fields} | SHORT_FLAGS


def choices_of(usage: str, flag: str) -> frozenset[str]:
    """The choices that argparse named for the flag of the recorded error."""
    match = re.search(rf"argument --{re.escape(flag)}: invalid choice: .*\(choose from (.*)\)", usage)
    return frozenset(re.findall(r"'([^']+)'", match.group(1))) if match else frozenset()


def full_name(name: str, known: frozenset[str]) -> str:
    """The flag that argparse takes `name` for: itself or the only one that begins so; '' for none."""
    if name in known or any(fnmatch(name, pattern) for pattern in FORK_FLAGS):
        return name
    longer = [flag for flag in known if flag.startswith(name)]
    return longer[0] if len(longer) == 1 else ""


def unknown_words(flags: Mapping[str, Any], known: frozenset[str]) -> tuple[str, ...]:
    """Flags (and their values) that argparse would call unrecognised."""
    out: list[str] = []
    for name, value in flags.items():
        if not full_name(name, known):
            out.append(f"--{name}")
            if value is not True:
                out.extend(value if isinstance(value, list) else [str(value)])
    return tuple(out)


def _fits(wanted: Any, given: Any, choices: frozenset[str]) -> bool:
    if isinstance(wanted, bool):
        return wanted == (given is not None and given is not False)
    if given is None or isinstance(given, (bool, list)):
        return False
    if wanted == "!choices":
        return bool(choices) and given not in choices
    bound = _BOUND.match(wanted)
    if bound is None:
        return bool(fnmatch(given, wanted[1:]) is False if wanted.startswith("!") else fnmatch(given, wanted))
    try:
        number, limit = float(given), float(bound.group(2))
    except ValueError:
        return False
    sign = bound.group(1)
    return (
        number < limit
        if sign == "<"
        else number <= limit
        if sign == "<="
        else number > limit
        if sign == ">"
        else number >= limit
    )


def choose(
    text: str, host: str, engine: str, flags: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> Choice:
    """The first rule of `text` that fits; ValueError when none does. environment: the launch's variables."""
    usage = usage_of_build() if engine == "sglang" else ""
    known = known_flags(usage) if usage else frozenset(flags)
    unknown = unknown_words(flags, known)
    given = {full_name(name, known) or name: value for name, value in flags.items()}
    if "model" in given:
        given.setdefault("model-path", given["model"])
    given.update({f"env-{name}": value or True for name, value in (environment or {}).items()})
    for rule in read(text):
        if rule.get("host", host) != host or rule.get("engine", engine) != engine:
            continue
        if "unknown-flag" in rule and rule["unknown-flag"] != bool(unknown):
            continue
        wanted: Sequence[tuple[str, Any]] = [(k, v) for k, v in rule.items() if k not in _RULE_KEYS]
        if all(_fits(value, given.get(name), choices_of(usage, name)) for name, value in wanted):
            name = str(rule["recording"])
            return Choice(name, bool(rule.get("freeze", True)), unknown if name == "unknown-flag" else ())
    raise ValueError(f"no rule fits host {host!r}, engine {engine!r}")
