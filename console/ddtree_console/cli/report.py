"""`report`: the incident file of a transaction, to attach to a ticket; secrets are masked."""

from __future__ import annotations

import argparse
import os

from ddtree_console.cli import live
from ddtree_console.cli.output import Output
from ddtree_console.services import report
from ddtree_console.services.console import LiveConsole
from ddtree_console.services.errors import HostError


def write(path: str, text: str) -> None:
    """A file that only its owner can read: masking may miss what nobody knew to be a secret. OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        os.fchmod(fd, 0o600)  # where it was there before
        file.write(text)


def main(args: argparse.Namespace, output: Output) -> int:
    """0; 2 for an unknown transaction or a file that cannot be written."""

    async def work(console: LiveConsole) -> int:
        text = await report.report(console, args.key, args.tx)
        if args.output in ("", "-"):
            output.json({"report": text}) if output.as_json else output.line(text.rstrip("\n"))
            return 0
        try:
            write(args.output, text)
        except OSError as error:
            raise HostError(args.key, f"write {args.output}", str(error.strerror), "name another file", 2) from error
        output.json({"file": args.output}) if output.as_json else output.note(f"written: {args.output}")
        return 0

    return live.with_console(args, args.key, work)
