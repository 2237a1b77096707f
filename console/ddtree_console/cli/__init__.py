"""The same services from a shell. Imports neither textual nor torch nor triton; heavy modules load inside commands."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `ddtree-console`; the exit code of the table in CONTRIBUTING."""
    from ddtree_console.cli.run import run

    return run(argv)
