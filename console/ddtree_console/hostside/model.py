"""The `model` command: target and draft as the unit's user finds them, and what real starts taught about this host."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ddtree_console.hostside import as_user, model_read, reply, request_json, starts
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.watch_config import is_unit

MOST = 4
SECONDS = 10.0
_CACHES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "HOME")


def look(raw: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The models that the request names, one after the other, in this process."""
    env = raw.get("env")
    told = env if isinstance(env, dict) else {}
    environ = {"HOME": os.environ.get("HOME", ""), **{k: str(told[k]) for k in _CACHES if told.get(k)}}
    if raw.get("hf_home"):
        environ["HF_HOME"] = str(raw["hf_home"])
    workdir, revision = str(raw.get("workdir") or ""), str(raw.get("revision") or "main")
    paths = [str(p) for p in raw.get("paths") or () if p][:MOST]
    return [model_read.read(path, environ, workdir, revision) for path in paths]


def main(roots: Roots, args: list[str]) -> int:
    """One line: {"models": [{"path", "config", "weights", "problems"} ..], "starts": [..]}."""
    try:
        raw = request_json.read()
    except ValueError as error:
        return request_json.refuse(2, str(error), "correct the request")
    user = str(raw.get("user") or "")
    try:
        models = as_user.call(user, lambda: {"models": look(raw)}, SECONDS)["models"]
    except as_user.NotKnown as error:
        names = [str(p) for p in raw.get("paths") or () if p][:MOST]
        models = [{"path": p, "config": {}, "weights": None, "problems": [str(error)]} for p in names]
    unit = str(raw.get("unit") or "")
    return reply.say({"models": models, "starts": starts.read(roots, unit) if is_unit(unit) else []})
