"""torch's version and CUDA from its version.py, read and not imported: that takes seconds, or fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ddtree_console.hostside.inspect_source import Sources
from ddtree_console.hostside.inspect_values import Values


def torch_version(found: Sequence[str]) -> tuple[str, str]:
    """(version with its tag such as 2.11.0+cu130, CUDA such as 13.0); '' for what is not there."""
    if not found or not found[0]:
        return "", ""
    sources = Sources([str(Path(found[0]).parent)])
    module = sources.load("torch.version")
    if module is None:
        return "", ""
    values = Values(sources)
    version, cuda = (values.of(module.values.get(name), module) for name in ("__version__", "cuda"))
    version = version if isinstance(version, str) else ""
    cuda = cuda if isinstance(cuda, str) else ""
    if version and cuda and "+" not in version:  # the index's own wheels carry no tag
        version = f"{version}+cu{cuda.replace('.', '')}"
    return version, cuda
