"""The target against transformers (recorded, and live where it is installed), and against its own other ways."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ddtree_kernels.models import Cache, Qwen3, target_names
from ddtree_kernels.models.config import target_config
from ddtree_kernels.ops.tree_accept import Accepted
from ddtree_kernels.ops.tree_attention import tree_attention
from tests.models.cases import PLAIN, TARGETS, TOKENS, weights_of
from tests.models.record import FILE, ask_transformers

RECORDED = json.loads(FILE.read_text(encoding="utf-8"))["cases"]


def made(raw: dict[str, Any], dtype: torch.dtype = torch.float64) -> Qwen3:
    """The target of a case, with features of all layers but the last."""
    config = target_config(raw, Path("config.json"))
    target = Qwen3(config, {name: tensor.to(dtype) for name, tensor in weights_of(target_names(config)).items()})
    target.layer_ids = tuple(range(config.shape.num_hidden_layers - 1))
    return target


def run_chain(target: Qwen3, tokens: list[int], parts: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and features of the tokens, run in parts of these sizes behind each other."""
    cache = Cache(target.config.shape, len(tokens), dtype=target.dtype)
    logits, features, start = [], [], 0
    for size in parts:
        positions = torch.arange(start, start + size)
        hidden, taken = target.forward(torch.tensor(tokens[start : start + size]), positions, cache, start)
        assert taken is not None
        logits.append(target.logits(hidden))
        features.append(taken)
        start += size
    return torch.cat(logits), torch.cat(features)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("parts", [[12], [1] * 12, [5, 1, 6]])
def test_says_what_transformers_said(name: str, parts: list[int]) -> None:
    want = RECORDED[name]
    logits, features = run_chain(made(TARGETS[name]), TOKENS, parts)
    # transformers computes norms and angles in float32 even in a float64 model
    torch.testing.assert_close(logits, torch.tensor(want["logits"], dtype=torch.float64), rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(features, torch.tensor(want["states"], dtype=torch.float64), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", TARGETS)
def test_float32_is_the_same_to_its_precision(name: str) -> None:
    logits, _ = run_chain(made(TARGETS[name], torch.float32), TOKENS, [12])
    want = torch.tensor(RECORDED[name]["logits"])
    assert (logits - want).abs().max() < 1e-4 * want.abs().max()


@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers not installed; recorded above"
)
@pytest.mark.parametrize("name", TARGETS)
def test_transformers_still_says_so(name: str) -> None:
    torch.testing.assert_close(
        torch.tensor(ask_transformers(TARGETS[name])["logits"]),
        torch.tensor(RECORDED[name]["logits"]),
        rtol=1e-6,
        atol=1e-6,
    )


def tree() -> tuple[list[int], list[int], torch.Tensor, list[list[int]]]:
    """A small tree: tokens, depths, words, and each node's path of node numbers."""
    parents = [-1, 0, 0, 1, 1, 2, 4]
    paths: list[list[int]] = []
    for node, parent in enumerate(parents):
        paths.append([*(paths[parent] if parent >= 0 else []), node])
    words = torch.tensor([[sum(1 << node for node in path)] for path in paths])
    return [7, 30, 11, 2, 40, 19, 23], [len(path) - 1 for path in paths], words, paths


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("name", ["untied", "window"])
def test_a_tree_node_is_its_own_chain(name: str, as_tensor: bool) -> None:
    target, (tokens, depths, words, paths) = made(TARGETS[name]), tree()
    length = len(TOKENS)
    cache = Cache(target.config.shape, length + len(tokens) + 3, dtype=target.dtype)
    target.forward(torch.tensor(TOKENS), torch.arange(length), cache, 0)
    start = torch.tensor([length]) if as_tensor else length
    positions = length + torch.tensor(depths)
    hidden, features = target.forward(torch.tensor(tokens), positions, cache, start, visibility=words)
    logits = target.logits(hidden)
    assert features is not None
    for node, path in enumerate(paths):
        chain = [*TOKENS, *(tokens[step] for step in path)]
        alone, alone_features = run_chain(target, chain, [len(chain)])
        torch.testing.assert_close(logits[node], alone[-1])
        torch.testing.assert_close(features[node], alone_features[-1])


def test_committed_nodes_are_context() -> None:
    target, (tokens, depths, words, paths) = made(PLAIN), tree()
    length = len(TOKENS)
    cache = Cache(target.config.shape, length + len(tokens), dtype=target.dtype)
    target.forward(torch.tensor(TOKENS), torch.arange(length), cache, 0)
    target.forward(torch.tensor(tokens), length + torch.tensor(depths), cache, length, visibility=words)
    path = paths[6]  # nodes 0, 1, 4, 6
    accepted = Accepted(
        torch.tensor([[*path, -1]], dtype=torch.int32), torch.tensor([len(path)], dtype=torch.int32), torch.tensor([1])
    )
    cache.commit(accepted, torch.tensor([length]))
    after = length + len(path)
    hidden, _ = target.forward(torch.tensor([21]), torch.tensor([after]), cache, after)
    chain = [*TOKENS, *(tokens[node] for node in path), 21]
    torch.testing.assert_close(target.logits(hidden)[0], run_chain(target, chain, [len(chain)])[0][-1])


def test_padding_nodes_change_nothing() -> None:
    target, (tokens, depths, words, _) = made(PLAIN), tree()
    results = []
    for padding in (0, 3):
        cache = Cache(target.config.shape, 40, dtype=target.dtype)
        target.forward(torch.tensor(TOKENS), torch.arange(12), cache, 0)
        padded = torch.cat([words, torch.zeros(padding, 1, dtype=torch.int64)])
        ids, at = torch.tensor([*tokens, *[0] * padding]), 12 + torch.tensor([*depths, *[-1] * padding])
        hidden, _ = target.forward(ids, at, cache, 12, visibility=padded)
        assert hidden.isfinite().all()
        results.append(hidden[: len(tokens)])
    torch.testing.assert_close(results[0], results[1])


def test_torch_and_our_op_attend_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The op's reference, run in float32 in place of torch's attention, gives the same hidden states."""
    from ddtree_kernels.models import attention

    raw = PLAIN | {"head_dim": 64}
    target, (tokens, depths, words, _) = made(raw, torch.float32), tree()

    def through_the_op(
        query: torch.Tensor, cache: Cache, layer: int, view: attention.View, window: int | None
    ) -> torch.Tensor:
        out = tree_attention(
            query[None], cache.keys[layer], cache.values[layer], view.words[None].contiguous(), view.lengths
        )
        assert isinstance(out, torch.Tensor)
        return out[0]

    hidden = []
    for patched in (False, True):
        if patched:
            monkeypatch.setattr("ddtree_kernels.models.trunk.attend", through_the_op)
        cache = Cache(target.config.shape, 30)
        target.forward(torch.tensor(TOKENS), torch.arange(12), cache, 0)
        hidden.append(target.forward(torch.tensor(tokens), 12 + torch.tensor(depths), cache, 12, visibility=words)[0])
    torch.testing.assert_close(hidden[0], hidden[1], rtol=1e-5, atol=1e-5)


def test_a_full_cache_says_so() -> None:
    target = made(PLAIN)
    with pytest.raises(ValueError, match="rows 0 to 11 are not in a cache of 8 rows"):
        run_cache = Cache(target.config.shape, 8, dtype=target.dtype)
        target.forward(torch.tensor(TOKENS), torch.arange(12), run_cache, 0)


@pytest.mark.parametrize("nodes", [1, 63, 64, 65, 130])
def test_chain_words_are_a_triangle(nodes: int) -> None:
    from ddtree_kernels.models.attention import chain_words
    from ddtree_kernels.ops.tree_attention.reference import tree_bits

    words = chain_words(nodes, torch.device("cpu"))
    assert words.shape == (nodes, (nodes + 63) // 64)
    assert torch.equal(tree_bits(words, nodes), torch.ones(nodes, nodes).tril().bool())
