"""`python -m ddtree_kernels.bench run [OP...] [--csv FILE]`, `readmes FILE`, or `decode [--help]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ddtree_kernels.bench.run import main

if __name__ == "__main__":
    if sys.argv[1:2] == ["decode"]:
        from ddtree_kernels.bench.decode import main as decode

        sys.exit(decode(sys.argv[2:]))
    if sys.argv[1:2] == ["readmes"] and len(sys.argv) == 3:
        from ddtree_kernels.bench.readmes import main as readmes

        sys.exit(readmes(Path(sys.argv[2])))
    parser = argparse.ArgumentParser(prog="python -m ddtree_kernels.bench", description=__doc__)
    parser.add_argument("command", choices=["run"])
    parser.add_argument(
        "op", nargs="*", help="tree_build, tree_attention, tree_accept, kv_commit, round; all by default"
    )
    parser.add_argument("--csv", type=Path, default=Path("bench.csv"), help="where the figures go")
    arguments = parser.parse_args()
    sys.exit(main(arguments.op, arguments.csv))
