"""Real flags beside the environment: --speculative-ddtree-budget and --speculative-ddtree-mode. Standard library only.

ServerArgs has no field for them, so their value goes into the environment, which the scheduler's process inherits; the
parser's own namespace ignores names that are no field.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from ddtree_kernels.sglang_plugin.settings import BUDGET, MODE, MODES

TARGET = "sglang.srt.server_args.ServerArgs.add_cli_args"


class _ToEnvironment(argparse.Action):
    """Stores the value in the variable that is its `const`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Sets the variable."""
        setattr(namespace, self.dest, values)
        os.environ[str(self.const)] = str(values)


def add(result: Any, parser: argparse.ArgumentParser, *rest: Any, **more: Any) -> None:
    """A hook behind ServerArgs.add_cli_args; adds nothing where another build has such flags already."""
    if "--speculative-ddtree-budget" in parser._option_string_actions:
        return
    parser.add_argument(
        "--speculative-ddtree-budget",
        type=int,
        action=_ToEnvironment,
        const=BUDGET,
        help=f"DDTREE: nodes of the draft tree besides its root; as {BUDGET}, and outranks it.",
    )
    parser.add_argument(
        "--speculative-ddtree-mode",
        choices=MODES,
        action=_ToEnvironment,
        const=MODE,
        help="DDTREE: tree emits what the tree accepts; shadow emits the chain's tokens and counts the difference.",
    )
