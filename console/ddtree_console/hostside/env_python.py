"""Asks a unit's interpreter where it imports from: as the unit's user, with the unit's Environment, in its folder."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddtree_console.hostside import as_user, child
from ddtree_console.hostside.env_launch import Target

LIMIT_S = 8.0

# Runs in the unit's interpreter, which may be any Python 3. `-c` searches the folder that it starts in first, as `-m`
# does. find_spec of a name without a dot imports nothing.
SCRIPT = """
import json, os, sys
try:
    from importlib.util import find_spec
except ImportError:
    find_spec = None
def look(name):
    try:
        spec = find_spec(name)
    except Exception as error:
        return {"error": "%s: %s" % (type(error).__name__, error)}
    if spec is None:
        return None
    return {"origin": spec.origin or "", "folders": list(spec.submodule_search_locations or ())}
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3], "prefix": sys.prefix, "base": sys.base_prefix,
    "path": [os.path.abspath(p or os.getcwd()) for p in sys.path],
    "builtin": list(sys.builtin_module_names), "standard": list(getattr(sys, "stdlib_module_names", ())),
    "specs": {name: look(name) for name in json.loads(sys.argv[1])},
}))
"""


@dataclass(frozen=True)
class Python:
    """path: sys.path, the start's folder first. specs: name -> {"origin", "folders"}, None for what is not found."""

    version: str
    prefix: str
    base: str
    path: tuple[str, ...] = ()
    standard: frozenset[str] = frozenset()
    specs: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)


def others_file(path: str) -> str:
    """Name of the user, not root, who can change that program or a folder on its way; '' where only root can."""
    real = Path(path).resolve()
    for part in (real, *real.parents):
        try:
            about = part.stat()
        except OSError:
            continue
        if about.st_uid != 0:
            return str(about.st_uid)
        if about.st_mode & stat.S_IWOTH and not about.st_mode & stat.S_ISVTX:
            return "65534"
    return ""


def user_for(about: Target) -> str:
    """Whom the interpreter is run as: the unit's user; where that is root and others can change the program, those."""
    if os.geteuid() != 0 or about.user not in ("", "root", "0"):
        return about.user
    return others_file(about.python) or about.user


def _run(about: Target, names: Sequence[str]) -> dict[str, Any]:
    """The interpreter's answer, in this process' own name."""
    env = dict(about.env)
    if about.user:
        env.update({key: os.environ[key] for key in ("HOME", "USER", "LOGNAME") if key in os.environ})
    argv = [about.python, "-B", "-c", SCRIPT, json.dumps(list(names))]
    done = subprocess.run(
        argv,
        env=env,
        cwd=about.workdir if os.access(about.workdir, os.X_OK) else "/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=LIMIT_S,
        preexec_fn=child.die_with_us(),
    )
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return {"status": done.returncode, "out": done.stdout.decode("utf-8", "replace"), "err": said[-1:]}


def _read(about: Target, done: Mapping[str, Any]) -> Python:
    try:
        # a sitecustomize may print before us
        raw = json.loads(done["out"].strip().splitlines()[-1])
    except (ValueError, IndexError):
        said = "; ".join(done["err"]) or f"exit status {done['status']}"
        raise as_user.NotKnown(f"{about.python}: {said}") from None
    return Python(
        version=str(raw["version"]),
        prefix=str(raw["prefix"]),
        base=str(raw["base"]),
        path=tuple(raw["path"]),
        standard=frozenset([*raw["standard"], *raw["builtin"]]),
        specs=raw["specs"],
    )


def ask(about: Target, names: Sequence[str] = ()) -> Python:
    """What the interpreter says of itself and of those names. as_user.NotKnown says why it says nothing."""
    return _read(about, as_user.call(user_for(about), lambda: _run(about, names), LIMIT_S + 1))


def ask_here(about: Target, names: Sequence[str]) -> Python:
    """The same from a process that is the unit's user already. as_user.NotKnown, OSError."""
    return _read(about, _run(about, names))
