"""What a service's own interpreter runs on a host without being installed there: DDTree's kernels, and the plug-in."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ddtree_console.transport.archive import Archive, pack

PACKAGE = "ddtree_kernels"
LEFT_OUT = ("models", "decode", "serve", "tiny", "bench", "sglang_plugin")
"""Parts of the package that only the wrapper, the benchmark and SGLang need."""
PLUGIN, DISTRIBUTION, VERSION = "sglang_plugin", "ddtree-sglang-plugin", "0.1.0"
ENTRY_POINTS = b"[sglang.srt.plugins]\nddtree = ddtree_kernels.sglang_plugin.plugin:load\n"


class NotInstalled(Exception):
    """The kernels are not beside this console."""


def _root() -> Path:
    """The package's folder. Imports nothing of it. NotInstalled."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise NotInstalled(f"{PACKAGE} is not installed beside the console")
    return Path(spec.origin).parent


def _archive(files: Mapping[str, bytes]) -> Archive:
    data = pack(files)
    return Archive(hashlib.sha256(data).hexdigest()[:16], data, dict(sorted(files.items())))


@cache
def kernels() -> Archive:
    """The package's Python files, without the parts that a check does not need. NotInstalled."""
    root = _root()
    return _archive(
        {
            f"{PACKAGE}/{path.relative_to(root).as_posix()}": path.read_bytes()
            for path in root.rglob("*.py")
            if path.relative_to(root).parts[0] not in LEFT_OUT
        }
    )


@cache
def plugin() -> Archive:
    """The SGLang plug-in with the dist-info by which PYTHONPATH alone makes SGLang find it. NotInstalled."""
    root = _root()
    paths = [root / "__init__.py", *(root / PLUGIN).rglob("*.py")]
    files = {f"{PACKAGE}/{path.relative_to(root).as_posix()}": path.read_bytes() for path in paths}
    if len(files) == 1:
        raise NotInstalled(f"{PACKAGE} beside the console has no {PLUGIN}: it is of another version")
    return _archive({**files, **_dist_info(files)})


def _dist_info(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """METADATA, entry_points.txt and RECORD of a distribution of those files, as an installer would write them."""
    folder = f"{DISTRIBUTION.replace('-', '_')}-{VERSION}.dist-info"
    own = {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {VERSION}\n".encode(),
        f"{folder}/entry_points.txt": ENTRY_POINTS,
        f"{folder}/INSTALLER": b"ddtree-console\n",
    }
    rows = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in sorted({**files, **own}.items())]
    record = "\n".join([*rows, f"{folder}/RECORD,,", ""])
    return {**own, f"{folder}/RECORD": record.encode()}


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
