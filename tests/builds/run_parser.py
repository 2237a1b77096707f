"""Runs inside one unpacked release: executes its real `ServerArgs.add_cli_args` and prints every option as JSON.

    python run_parser.py FOLDER

The release's own modules are imported where they can be; what is missing (torch, kernels, ...) is a stub that takes
any use. Nothing of ddtree_console is imported: these lists must not come from our own reader.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any


class _Meta(type):
    """A class that has every attribute, so that `class X(torch.nn.Module)` and annotations work."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stub(name)

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__

    def __add__(cls, other: Any) -> Any:
        return other  # choices that are a stub's and the release's own: the names do not depend on them

    __radd__ = __add__

    def __getitem__(cls, item: Any) -> Any:
        return cls


def _stub(name: str) -> Any:
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        """Takes anything."""

    def used(self: Any, *args: Any, **kwargs: Any) -> Any:
        """As a decorator it gives back what it decorates."""
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else _stub("result")()

    body: dict[str, Any] = {"__init__": made, "__call__": used, "__module__": "stub"}
    body["__getattr__"] = _attribute
    body["__iter__"] = lambda self: iter(())
    body["__enter__"] = lambda self: self
    body["__exit__"] = lambda self, *rest: None
    body["__bool__"] = lambda self: False
    body["__int__"] = body["__index__"] = body["__len__"] = lambda self: 0
    body["__float__"] = lambda self: 0.0
    body["__getitem__"] = lambda self, item: self
    for operator in ("lt", "le", "gt", "ge"):
        body[f"__{operator}__"] = lambda self, other: False
    return _Meta(name, (), body)


def _attribute(self: Any, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _stub(name)()


class _Module(types.ModuleType):
    """A module that has everything."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = "0.0.0" if name == "version" else _stub(name)
        setattr(self, name, value)
        return value


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked last: any module that nothing else finds is a stub."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """A stub, but for the standard library's own optional modules."""
        if fullname.partition(".")[0] in sys.stdlib_module_names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """An empty one."""
        module = _Module(spec.name)
        module.__dict__["__version__"] = "999.0"
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


class Own(importlib.abc.MetaPathFinder):
    """The release's own modules; one that cannot be imported among stubs is a stub itself."""

    def __init__(self, folder: str) -> None:
        self._folder, self._stubs = folder, Stubs()
        self.stubbed: list[str] = []

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """The real module with a loader that falls back."""
        if fullname.partition(".")[0] != "sglang":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path or [self._folder])
        if spec is None or spec.loader is None:
            return spec
        if fullname in ("sglang", "sglang.srt"):  # their __init__ pulls the whole server in
            bare = importlib.machinery.ModuleSpec(fullname, self._stubs, is_package=True)
            bare.submodule_search_locations = spec.submodule_search_locations
            return bare
        real, own = spec.loader, self

        class Loader(importlib.abc.Loader):
            def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
                return real.create_module(spec)

            def exec_module(self, module: types.ModuleType) -> None:
                if fullname.startswith(("sglang.srt.server_args", "sglang.srt.arg_groups")):
                    real.exec_module(module)  # what is asked for must be real
                    return
                try:
                    real.exec_module(module)
                except Exception:
                    own.stubbed.append(fullname)
                    module.__class__ = _Module

        spec.loader = Loader()
        return spec


def options(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """printed: names in --help. hidden: parsed but not printed. switches: those that take no value."""
    found: dict[str, list[str]] = {"printed": [], "hidden": [], "switches": []}
    for action in parser._actions:
        found["hidden" if action.help == argparse.SUPPRESS else "printed"] += action.option_strings
        if action.nargs == 0:
            found["switches"] += action.option_strings
    return {key: sorted(value) for key, value in found.items()}


def main(argv: Sequence[str]) -> int:
    """One JSON object on stdout."""
    own = Own(argv[0])
    sys.path.insert(0, argv[0])
    sys.meta_path.insert(0, own)
    sys.meta_path.append(Stubs())
    server_args = importlib.import_module("sglang.srt.server_args")
    parser = argparse.ArgumentParser(prog="sglang")
    server_args.ServerArgs.add_cli_args(parser)
    told = options(parser)
    help_text = parser.format_help()
    missing = [name for name in told["printed"] if name not in help_text]
    if missing:
        sys.exit(f"not in the printed help: {missing}")
    print(json.dumps({**told, "stubbed": sorted(own.stubbed)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
