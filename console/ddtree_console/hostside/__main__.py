"""`python3 -I -B VAR/bin/HASH [--roots=FILE] COMMAND [ARG..]`: runs one command, importing only its module."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence

from ddtree_console.hostside import roots as roots_module

COMMANDS = (
    "hello",
    "watch",
    "journal",
    "logs",
    "submit",
    "request",
    "read",
    "adopt",
    "accept-drift",
    "inspect",
    "model",
    "history",
    "events",
    "check",
    "carry",
    "gpu_check",
    "http",
    "tx",
    "recover",
)


def refuse(code: int, cause: str, next_step: str) -> int:
    """An error in the form that every command uses."""
    sys.stdout.write(json.dumps({"ok": False, "code": code, "cause": cause, "next": next_step}) + "\n")
    return code


def main(argv: Sequence[str]) -> int:
    """The command's exit status."""
    args = list(argv)
    path = ""
    while args and args[0].startswith("--"):
        option = args.pop(0)
        if not option.startswith("--roots="):
            return refuse(2, f"unknown option {option}", "use --roots=FILE only")
        path = option[len("--roots=") :]
    if not args or args[0] not in COMMANDS:
        return refuse(2, f"unknown command {args[0] if args else ''!r}", f"one of: {' '.join(COMMANDS)}")
    try:
        roots = roots_module.load(path)
    except (OSError, ValueError, TypeError) as error:
        return refuse(2, f"roots file {path}: {error}", "correct the file")
    try:
        command = importlib.import_module(f"ddtree_console.hostside.{args[0].replace('-', '_')}")
        status = command.main(roots, args[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever asked is gone. Point stdout elsewhere, or the interpreter complains again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        return 130
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
