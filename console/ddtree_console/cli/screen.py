"""The bare command: the screen. Connections, HTTP and schema libraries load after its first frame."""

from __future__ import annotations

import argparse

from ddtree_console.cli.output import Output
from ddtree_console.services.api import Console


def main(args: argparse.Namespace, output: Output) -> int:
    """0 after quit, 2 for a fleet that cannot be loaded."""
    from ddtree_console.ui.app import ConsoleApp

    def load() -> Console:
        from ddtree_console.cli import live

        return live.build(live.load_fleet(args.fleet), args.read_only)

    app = ConsoleApp(load, read_only=args.read_only)
    text = app.run()
    for line in (text or "").splitlines():
        output.note(line)
    return app.return_code or 0
