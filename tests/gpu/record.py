"""Runs of the plan as recordings of the console: `python3 tests/gpu/record.py plugin.tar.gz tree-31=tiny-tree-31 ...`

Takes NAME.log and NAME.json out of the archive and packs them, bytes untouched, as the demo's other recordings are.
"""

from __future__ import annotations

import argparse
import lzma
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "console/ddtree_console/demo/recordings"


def main(argv: Sequence[str], folder: Path = FOLDER) -> int:
    """Writes NAME.{log,json}.xz for each pair; KeyError where the archive lacks one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("pairs", nargs="+", metavar="NAME=AS")
    args = parser.parse_args(argv)
    with tarfile.open(args.archive) as archive:
        for pair in args.pairs:
            name, _, as_ = pair.partition("=")
            for kind in ("log", "json"):
                file = archive.extractfile(f"recordings/{name}.{kind}")
                assert file is not None
                (folder / f"{as_ or name}.{kind}.xz").write_bytes(lzma.compress(file.read(), preset=9))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
