"""The `inspect` command: what the build is that a unit would start, read from its files as the unit's user."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ddtree_console.domain import help_text
from ddtree_console.hostside import as_user, inspect_cache, inspect_dists, inspect_engine, inspect_help, request_json
from ddtree_console.hostside.env_launch import file_environment
from ddtree_console.hostside.inspect_dists import Dist
from ddtree_console.hostside.inspect_flags import HELP, FlagReader
from ddtree_console.hostside.inspect_paths import Interpreter, environment, find, only_roots
from ddtree_console.hostside.inspect_source import Sources
from ddtree_console.hostside.inspect_torch import torch_version
from ddtree_console.hostside.reply import say
from ddtree_console.hostside.roots import Roots

SECONDS = 20.0
PACKAGE = {"sglang": "sglang", "wrapper": "ddtree_kernels"}
DISTRIBUTION = {"sglang": "sglang", "wrapper": "ddtree-console"}
PATCHED = ("sglang", "sglang-kernel", "sgl-kernel", "flashinfer-python", "triton", "transformers")
"""distributions whose files are compared with their RECORD."""
MOST_PATCHED = 200


class Inspection:
    """One look at a build; `answer` holds what it found so far, so that a part that fails loses only itself."""

    def __init__(self, roots: Roots, raw: Mapping[str, Any], more_env: Mapping[str, str]) -> None:
        self._roots = roots
        self.engine = str(raw.get("engine") or "sglang")
        command = raw.get("command")
        self.command = [str(word) for word in command] if isinstance(command, list) else []
        self.python = str(raw.get("python") or "") or python_of(self.command)
        workdir = str(raw.get("workdir") or "/")
        self.workdir = os.environ.get("HOME", "/") if workdir == "~" else workdir
        given = raw.get("env")
        env = {str(k): str(v) for k, v in given.items()} if isinstance(given, dict) else {}
        env.update(more_env)
        home = os.environ.get("HOME", "") if raw.get("user") else ""
        self.env = environment(env, more_env.get("PYTHONPATH") or str(raw.get("pythonpath") or ""), home)
        self.problems: list[str] = []
        self.answer: dict[str, Any] = {
            "engine": self.engine,
            "python": self.python,
            "source": "none",
            "problems": self.problems,
        }

    def look(self) -> dict[str, Any]:
        """The whole answer; never raises on what the host holds."""
        name = PACKAGE.get(self.engine, "")
        if name and not self.python:
            program = self.command[0] if self.command else "the unit"
            self.problems.append(f"flags are not known, because {program} is no Python program")
        elif name:
            where = find(self.python, [name, "torch"], self.env, self.workdir)
            self.problems += [f"not sure, because {p}" for p in where.problems]
            dists = inspect_dists.installed([*where.path, *_parents(where)])
            self._versions(where, dists)
            if name in where.found:
                self._package(name, where, dists)
            else:
                self.problems.append(
                    f"flags are not known, because {self.python} finds no package {name}{_half(name, dists)}"
                )
        if not self.answer.get("flags"):
            self._help()
        return self.answer

    def _versions(self, where: Interpreter, dists: Mapping[str, Dist]) -> None:
        versions = {name: dists[name].version for name in inspect_dists.PACKAGES if name in dists}
        torch, cuda = torch_version(where.found.get("torch", ()))
        if torch:
            versions["torch"] = torch
        versions["python"] = where.version
        own = dists.get(DISTRIBUTION[self.engine])
        self.answer.update(
            versions={k: v for k, v in versions.items() if v},
            cuda=cuda,
            pins=inspect_dists.pins(own) if own is not None else {},
        )

    def _package(self, name: str, where: Interpreter, dists: Mapping[str, Dist]) -> None:
        folder = where.found[name][0]
        own = dists.get(DISTRIBUTION[self.engine])
        plugins = list(inspect_dists.entry_points(dict(dists), self.env.get("SGLANG_PLUGINS", "")))
        if self.engine != "sglang":
            plugins = []
        self.answer["package"] = folder
        self.answer["plugins"] = {n: f"{d.name} {d.version}".strip() for n, _, d in plugins}
        modules = [module for _, module, _ in plugins]
        key = {"package": folder, "engine": self.engine, "plugins": modules, "path": list(where.path)}
        kept = inspect_cache.load(self._roots, key)
        if kept is None:
            kept = self._read(name, folder, where, modules, {m: f"{d.name} {d.version}" for _, m, d in plugins}, key)
        else:
            self.answer["cached"] = True
        self.problems += kept.pop("problems", [])
        tree_version = str(kept.pop("tree_version", ""))
        self.answer.update(kept)
        self._release(folder, own, tree_version)
        self._patched(dists)

    def _read(
        self, name: str, folder: str, where: Interpreter, modules: Sequence[str], owners: Mapping[str, str], key: Any
    ) -> dict[str, Any]:
        sources = Sources([str(Path(folder).parent), *where.path])
        value: dict[str, Any] = {}
        if self.engine == "sglang":
            found = inspect_engine.flags(sources, name, modules)
            rows = found["flags"]
            known = inspect_engine.algorithms(sources, name, rows, modules)
            plugin = next((o for m, o in owners.items() if "ddtree" in m.lower()), "")
            value = {"algorithms": known, "ddtree": inspect_engine.ddtree(sources, name, rows, known, plugin)}
        else:
            reader = FlagReader(sources)
            for module in sources.below(f"{name}.serve"):
                reader.module(module)
            if reader.flags:
                reader.flags.setdefault("help", dict(HELP))
            found = {"flags": [reader.flags[n] for n in sorted(reader.flags)], "problems": []}
        missing = [m for m in modules if not sources.find(m)]
        problems = [f"flags of the plug-in {m} are not known, because its source was not found" for m in missing]
        value.update(flags=found["flags"], source="ast" if found["flags"] else "none")
        value["tree_version"] = inspect_engine.release_of(sources, name)
        value["problems"] = [*sources.problems, *found["problems"], *problems]
        if not found["flags"]:
            value["problems"].append(f"flags are not known, because {folder} declares none where they are looked for")
        folders = {str(Path(path).parent) for path in sources.read}
        inspect_cache.keep(self._roots, key, [*sources.read, *sorted(folders)], value)
        return value

    def _release(self, folder: str, own: Dist | None, tree_version: str) -> None:
        """The version of the source that would run: of the distribution only where that is what lies there."""
        places = {Path(folder).parent, Path(folder).resolve().parent}
        editable = inspect_dists.editable_of(own) if own is not None else None
        belongs = own is not None and bool(places & {Path(own.base), Path(own.base).resolve(), editable})
        if own is not None and (belongs or not tree_version):
            self.answer["release"] = own.version
        else:
            self.answer["release"] = tree_version
        if own is not None and not belongs and editable is None:
            self.problems.append(
                f"what is installed as {own.name} {own.version} in {own.base} is not used: {folder} comes before it"
            )
        if not self.answer["release"]:
            self.problems.append(f"release is not known, because {folder} has no metadata and no version file")

    def _patched(self, dists: Mapping[str, Dist]) -> None:
        changed: list[str] = []
        for name in PATCHED if self.engine == "sglang" else ():
            dist = dists.get(name)
            if dist is None:
                continue
            key = {"record": dist.folder, "state": inspect_dists.fingerprint(dist)}
            kept = inspect_cache.load(self._roots, key) if key["state"] else None
            if kept is None:
                found, why = inspect_dists.compare(dist, thorough=name == DISTRIBUTION[self.engine])
                kept = {"changed": found, "why": why}
                if key["state"]:
                    inspect_cache.keep(self._roots, key, [], kept)
            changed += kept["changed"]
            if kept["why"]:
                self.problems.append(kept["why"])
        if len(changed) > MOST_PATCHED:
            changed = [*changed[:MOST_PATCHED], f"and {len(changed) - MOST_PATCHED} more"]
        self.answer["patched"] = changed

    def _fit_for_root(self, argv: Sequence[str]) -> None:
        """As root no code may run that another user can change. ValueError names the first such folder."""
        if os.geteuid() != 0:
            return
        python = python_of(argv)
        top = argv[argv.index("-m") + 1].partition(".")[0] if "-m" in argv else ""
        where = find(python, [top] if top else [], self.env, self.workdir) if python else Interpreter("")
        folders = [p for p in (*where.path, *(p for found in where.found.values() for p in found)) if Path(p).exists()]
        loose = next((said for path in folders if (said := only_roots(path))), "")
        if loose:
            raise ValueError(f"it is not run as root: {loose}")

    def _help(self) -> None:
        argv = inspect_help.argv_of(self.command)
        if not argv:
            if not self.problems:
                self.problems.append(
                    "flags are not known, because nothing is known of this engine: all are taken as given"
                )
            return
        try:
            self._fit_for_root(argv)
            text = inspect_help.run(argv, self.env, self.workdir)
        except (OSError, ValueError) as error:
            why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            self.problems.append(f"flags are not known, because --help was no help: {why}")
            return
        flags = help_text.parse(text)
        if flags:
            self.answer.update(source="help", flags=[asdict(flag) for flag in flags])
        else:
            self.problems.append(f"flags are not known, because {' '.join(argv)} printed none")


def python_of(command: Sequence[str]) -> str:
    """The interpreter of a command: itself, or what the first line of a script (venv/bin/sglang) names."""
    if not command:
        return "/usr/bin/python3"
    if Path(command[0]).name.startswith("python"):
        return command[0]
    try:
        with Path(command[0]).open("rb") as file:
            first = file.readline(512).decode("utf-8", "replace")
    except OSError:
        return ""
    word = first[2:].split()[:1] if first.startswith("#!") else []
    return word[0] if word and Path(word[0]).name.startswith("python") else ""


def _parents(where: Interpreter) -> list[str]:
    """Folders of packages that are found beside the path (editable finders)."""
    found = [str(Path(p[0]).parent) for p in where.found.values() if p and p[0]]
    return [f for f in dict.fromkeys(found) if f not in where.path]


def _half(name: str, dists: Mapping[str, Dist]) -> str:
    """What a half-installed package left, as an end of a sentence."""
    dist = dists.get(name.replace("_", "-"))
    return f", though {dist.folder} says that {dist.version} is installed" if dist is not None else ""


def inspect(roots: Roots, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The answer for a request {engine, python, user, workdir, env, pythonpath, command,
    environment_files}."""
    user = str(raw.get("user") or "")
    files = raw.get("environment_files")
    # read before the user is taken on: systemd reads them as root
    more = [file_environment(f) for f in files if isinstance(f, str)] if isinstance(files, list) else []
    env = {key: value for one in more for key, value in one.items()}
    try:
        return as_user.call(user, lambda: Inspection(roots, raw, env).look(), SECONDS)
    except as_user.NotKnown as error:
        engine, python = str(raw.get("engine") or ""), str(raw.get("python") or "")
        return {"engine": engine, "python": python, "source": "none", "problems": [f"not known, because {error}"]}


def main(roots: Roots, args: list[str]) -> int:
    """`inspect`: the request on stdin, one line on stdout."""
    try:
        raw = request_json.read()
    except ValueError as error:
        return request_json.refuse(2, str(error), "correct the request")
    return say(inspect(roots, raw))
