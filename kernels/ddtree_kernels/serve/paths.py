"""Where target and drafter lie; asked before torch is imported, so that a wrong path is told at once."""

from __future__ import annotations

import argparse
from pathlib import Path


class StartError(RuntimeError):
    """What was asked for cannot be; one line."""


def folders(args: argparse.Namespace) -> tuple[Path, Path | None]:
    """The target's folder, and the drafter's unless the mode needs none. StartError."""
    path = Path(args.model_path)
    if args.model_path == "tiny":
        from ddtree_kernels import tiny

        path = tiny.path()
    if not path.is_dir():
        raise StartError(f"no model at {path}: name a folder, or tiny for the pair that comes with this package")
    target = path / "target" if (path / "target" / "config.json").exists() else path
    if args.mode == "autoregressive":
        return target, None
    beside = Path(args.draft) if args.draft else path / "draft"
    if not beside.is_dir():
        where = f"no draft at {beside}" if args.draft else f"{path} has no draft beside it"
        raise StartError(f"{where}: name its folder with --draft, or use --mode autoregressive")
    return target, beside
