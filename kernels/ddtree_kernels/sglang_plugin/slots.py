"""Which of a round's KV slots stay, and in which order. Standard library only.

With pages of one token nothing is copied: the slots of the accepted path are listed anew at consecutive positions of
the request, and all others go back to the allocator.
"""

from __future__ import annotations

from collections.abc import Sequence


def split(paths: Sequence[Sequence[int]], width: int) -> tuple[list[int], list[int]]:
    """(kept, freed): indices into the flat [requests * width] slots of a round; kept in the order of each path.

    paths: for each request the nodes that were committed, root first. ValueError for a node that is not in the tree or
    stands in a path twice: a slot would leak, or be freed and used.
    """
    kept: list[int] = []
    freed: list[int] = []
    for request, path in enumerate(paths):
        base, stays = request * width, set(path)
        if len(stays) != len(path) or any(not 0 <= node < width for node in path):
            raise ValueError(f"path {list(path)} is none in a tree of {width} nodes")
        kept += [base + node for node in path]
        freed += [base + node for node in range(width) if node not in stays]
    return kept, freed
