"""Parses, runs one command, and turns every error into a line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from ddtree_console.cli.arguments import parser
from ddtree_console.cli.output import Output
from ddtree_console.services.errors import HostError, NoFleet

INTERRUPTED, INPUT = 130, 2
MODULES = {
    "status": "status",
    "watch": "watch",
    "deploy": "deploy",
    "rollback": "deploy",
    "logs": "logs",
    "history": "history",
    "report": "report",
    "adopt": "adopt",
    "check": "check",
    "gpu-check": "gpu_check",
    "explain": "explain",
    "demo": "demo",
    None: "screen",
}


def run(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    try:
        args = parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else INPUT
    output = Output(as_json=getattr(args, "json", False))
    try:
        return _run(args, output)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has what it wanted. Without this the interpreter complains once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(args: argparse.Namespace, output: Output) -> int:
    module = importlib.import_module(f"ddtree_console.cli.{MODULES[args.command]}")
    try:
        return int(module.main(args, output))
    except HostError as error:
        return output.error(error)
    except NoFleet as error:
        output.note(f"ddtree-console: {error}")
        output.note(
            "  next: `ddtree-console adopt FILE.service` makes a first profile; `ddtree-console demo` needs no host"
        )
        return INPUT
    except ValueError as error:
        # A broken fleet or profile: every problem as file:line: key: reason.
        problems = getattr(error, "problems", None)
        if problems is None:
            raise
        for problem in problems:
            output.note(str(problem))
        return INPUT
