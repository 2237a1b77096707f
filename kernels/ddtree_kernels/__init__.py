"""DDTree's own kernels, models and server. Importable where neither torch nor triton is installed.

The public operations are loaded on first use, so that `import ddtree_kernels` itself never imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddtree_kernels.ops.kv_commit import KvTable, feature_commit, kv_commit, kv_table
    from ddtree_kernels.ops.tree_accept import Accepted, linear_accept, tree_accept
    from ddtree_kernels.ops.tree_attention import tree_attention
    from ddtree_kernels.ops.tree_build import DraftTree, tree_build

__version__ = "0.1.0"

_HOME = {
    "DraftTree": "tree_build",
    "tree_build": "tree_build",
    "tree_attention": "tree_attention",
    "Accepted": "tree_accept",
    "tree_accept": "tree_accept",
    "linear_accept": "tree_accept",
    "KvTable": "kv_commit",
    "kv_table": "kv_commit",
    "kv_commit": "kv_commit",
    "feature_commit": "kv_commit",
}

__all__ = [
    "Accepted",
    "DraftTree",
    "KvTable",
    "__version__",
    "feature_commit",
    "kv_commit",
    "kv_table",
    "linear_accept",
    "tree_accept",
    "tree_attention",
    "tree_build",
]


def __getattr__(name: str) -> Any:
    """The named operation, imported now; AttributeError for any other name, ImportError without torch."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.ops.{home}"), name)


def __dir__() -> list[str]:
    """Every public name, loaded or not."""
    return sorted(__all__)
