"""The launch that ends a captured round, on made-up trees and choices, against the operations that it stands for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ddtree_kernels.decode.finish import finish
from ddtree_kernels.decode.ring import Ring
from ddtree_kernels.decode.round import Place
from ddtree_kernels.models.cache import Cache
from ddtree_kernels.ops.kv_commit import feature_commit
from ddtree_kernels.ops.tree_accept import Accepted, linear_accept, tree_accept
from ddtree_kernels.ops.tree_build.reference import tree_build
from ddtree_kernels.ops.tree_build.tree import DraftTree
from tests.decode.pairs import shape

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DEPTH, VOCABULARY, LENGTH, COLUMNS = 7, 4, 9, 40


def made(nodes: int) -> tuple[DraftTree, torch.Tensor]:
    """A tree with its chain and padding, and choices that follow it for a few steps from the root."""
    generator = torch.Generator().manual_seed(nodes)
    logits = torch.randn(1, DEPTH, VOCABULARY, generator=generator)
    tree = tree_build(logits, torch.tensor([3]), nodes - 1, spine=True)
    tree = DraftTree(*(getattr(tree, name).to(DEVICE) for name in DraftTree.__dataclass_fields__))
    return tree, torch.randint(VOCABULARY, (nodes,), generator=generator).to(DEVICE)


def along(tree: DraftTree, chosen: torch.Tensor, steps: int, last: bool) -> torch.Tensor:
    """The choices changed so that the target walks so many steps, at the end to a parent's last child or its first."""
    chosen, at = chosen.clone(), 0
    parents = tree.parents[0].tolist()
    for step in range(steps):
        children = [i for i, parent in enumerate(parents) if parent == at]
        if not children:
            break
        child = children[-1] if last and step == steps - 1 else int(tree.first_child[0, at])
        chosen[at] = tree.tokens[0, child]
        at = child
    return chosen


def spine(tree: DraftTree, chosen: torch.Tensor) -> Accepted:
    """What the chain of first children accepts."""
    path = [0]
    while (child := int(tree.first_child[0, path[-1]])) >= 0:
        path.append(child)
    chain = linear_accept(tree.tokens[:, path[1:]], chosen[None, path])
    return replace(chain, nodes=torch.tensor([path], device=DEVICE).int().where(chain.nodes >= 0, -1))


def ended(
    verified: torch.Tensor | DraftTree | None, chosen: torch.Tensor, want: Accepted, dtype: torch.dtype, shadow: bool
) -> list[int]:
    """Ends a round both ways and holds all but the row's last two numbers to each other; those two."""
    nodes, tree = len(chosen), isinstance(verified, DraftTree)
    width = min(DEPTH + 1, nodes)
    generator = torch.Generator().manual_seed(1)
    caches = [Cache(shape(2), LENGTH + nodes, DEVICE, dtype) for _ in range(2)]
    rows = torch.randn(caches[0].storage.shape, generator=generator).to(DEVICE, dtype)
    features = torch.randn(nodes, COLUMNS, generator=generator).to(DEVICE, dtype) if verified is not None else None
    for cache in caches:
        cache.storage.copy_(rows)
    pending = torch.zeros(width, COLUMNS, dtype=dtype, device=DEVICE)
    place = Place(torch.tensor([LENGTH], device=DEVICE), torch.tensor([3], device=DEVICE),
                  torch.tensor([2], device=DEVICE), pending)  # fmt: skip
    ring = Ring(width + 3, DEVICE)
    began = torch.tensor([LENGTH], device=DEVICE)
    finish(place, verified, chosen, features, caches[0], began, ring, width, shadow=shadow)
    *tokens, count, would, wrong = ring.last()

    assert count == int(want.counts[0])
    path = want.nodes[0, :count].long()
    assert tokens == chosen[path].tolist() + [0] * (width - count)
    assert place.root.tolist() == want.bonus.tolist() == tokens[count - 1 : count]
    assert (int(place.length), int(place.before)) == (LENGTH + count, LENGTH)
    if tree:
        caches[1].commit(want, torch.tensor([LENGTH], device=DEVICE))
    assert torch.equal(caches[0].storage, caches[1].storage)
    if features is not None:
        if tree:
            feature_commit(features[None], want)
        assert torch.equal(pending[:count], features[:count])
    return [would, wrong]


@pytest.mark.parametrize(
    ("nodes", "dtype"), [(9, torch.bfloat16), (65, torch.float32), (140, torch.bfloat16)], ids=["9", "65", "140"]
)
def test_a_tree_s_round(nodes: int, dtype: torch.dtype) -> None:
    tree, chosen = made(nodes)
    lengths = set()
    for steps, last in ((0, False), (2, True), (DEPTH, False)):
        now = along(tree, chosen, steps, last)
        walked, chain = tree_accept(tree, now[None], max_depth=DEPTH), spine(tree, now)
        count = int(walked.counts[0])
        lengths.add(count)
        assert ended(tree, now, walked, dtype, False) == [count, 0]
        assert ended(tree, now, chain, dtype, True) == [count, 0]
    assert max(lengths) == DEPTH + 1 and len(lengths) > 1, "the paths are all of one length"


def test_a_chain_s_round_and_the_root_alone() -> None:
    tokens = torch.tensor([2, 1, 3, 0, 1, 2, 2, 0], device=DEVICE)
    for wrong in range(1, DEPTH + 2):
        chosen = torch.cat([tokens[1:], tokens[:1]])
        chosen[wrong - 1] = 9
        want = linear_accept(tokens[None, 1:], chosen[None])
        assert int(want.counts[0]) == wrong
        assert ended(tokens, chosen, want, torch.float32, False) == [wrong, 0]
    one = torch.tensor([5], device=DEVICE)
    alone = Accepted(one[None].int() * 0, one.int() * 0 + 1, one)
    assert ended(None, one, alone, torch.float32, False) == [1, 0]


def test_a_tree_that_contradicts_its_chain_is_told() -> None:
    """The chain goes by first children, the tree by parents and visibility: a fault in either of these shows."""

    def row(numbers: list[int], dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.tensor([numbers], dtype=dtype, device=DEVICE)

    tree = DraftTree(
        row([3, 1, 2, 0], torch.int64), row([-1, 0, 1, 0]), row([0, 1, 2, 1]), row([0] * 4, torch.float32), row([4])[0],
        row([1, 3, 7, 9], torch.int64)[..., None], row([1, 2, -1, -1]), row([-1, 3, -1, -1]),
    )  # fmt: skip
    chosen = torch.tensor([1, 2, 5, 7], device=DEVICE)
    chain = spine(tree, chosen)
    assert chain.nodes.tolist() == [[0, 1, 2]]
    assert ended(tree, chosen, chain, torch.float32, True) == [3, 0]
    for faulty in (
        replace(tree, parents=row([-1, 0, 3, 0])),
        replace(tree, visibility=row([1, 3, 15, 9], torch.int64)[..., None]),
    ):
        assert ended(faulty, chosen, chain, torch.float32, True) == [2, 1]
