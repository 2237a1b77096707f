"""The drafter against a plain re-statement, over rounds with its cache; training's batched passes against both."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ddtree_kernels.models import Cache, DFlash, Qwen3, draft_names, target_names
from ddtree_kernels.models.config import default_layer_ids, draft_config, target_config
from ddtree_kernels.tiny.batched import draft_forward, target_forward
from tests.models.cases import DRAFT, PLAIN, TOKENS, weights_of
from tests.models.plain_dflash import draft_logits

HERE = Path("config.json")
TARGET_WEIGHTS = weights_of(target_names(target_config(PLAIN, HERE)))
DRAFT_WEIGHTS = weights_of(draft_names(draft_config(DRAFT, HERE)))
BLOCK = 5


def pair(dtype: torch.dtype = torch.float64) -> tuple[Qwen3, DFlash]:
    """The random target and its random drafter."""
    target = Qwen3(target_config(PLAIN, HERE), {name: tensor.to(dtype) for name, tensor in TARGET_WEIGHTS.items()})
    draft = DFlash(
        draft_config(DRAFT, HERE), {name: tensor.to(dtype) for name, tensor in DRAFT_WEIGHTS.items()}, target
    )
    target.layer_ids = draft.config.layer_ids
    return target, draft


def features_of(target: Qwen3, tokens: list[int]) -> torch.Tensor:
    """The target's features of a chain, [n, 2 H]."""
    cache = Cache(target.config.shape, len(tokens), dtype=target.dtype)
    _, features = target.forward(torch.tensor(tokens), torch.arange(len(tokens)), cache, 0)
    assert features is not None
    return features


def plainly(features: torch.Tensor, root: int) -> torch.Tensor:
    """The re-statement's logits."""
    head = TARGET_WEIGHTS["lm_head.weight"]
    return draft_logits(DRAFT, DRAFT_WEIGHTS, features, root, TARGET_WEIGHTS["model.embed_tokens.weight"], head)


def test_one_draft() -> None:
    target, draft = pair()
    features, cache = features_of(target, TOKENS), Cache(draft.config.shape, 17, dtype=torch.float64)
    draft.extend(features, cache, 0)
    have = draft.draft(torch.tensor([21]), cache, 12)
    torch.testing.assert_close(have, plainly(features, 21), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_rounds_with_rejected_rows(as_tensor: bool) -> None:
    """Each round gives a whole block of features, of which only some were accepted; rubbish follows them."""
    target, draft = pair()
    cache = Cache(draft.config.shape, len(TOKENS) + 2 * BLOCK, dtype=torch.float64)
    cache.storage.fill_(float("nan") if not as_tensor else 3e4)  # what lies beyond is never read
    features = features_of(target, TOKENS)
    length = 3
    draft.extend(features[:length], cache, 0)
    draft.draft(torch.tensor([TOKENS[3]]), cache, length)
    for accepted in (1, 4, 2):
        rubbish = torch.full((BLOCK - accepted, features.shape[1]), 5.0, dtype=torch.float64)
        given = torch.cat([features[length : length + accepted], rubbish])
        draft.extend(given, cache, torch.tensor([length]) if as_tensor else length)
        length += accepted
        root = torch.tensor([TOKENS[length]])
        if as_tensor:
            cache.storage[:, :, :, length + BLOCK :] = 0.0  # torch's attention adds zero times what it masks
        have = draft.draft(root, cache, torch.tensor([length]) if as_tensor else length)
        torch.testing.assert_close(have, plainly(features[:length], TOKENS[length]), rtol=1e-6, atol=1e-6)


def test_float32_is_the_same_to_its_precision() -> None:
    target, draft = pair(torch.float32)
    features, cache = features_of(target, TOKENS), Cache(draft.config.shape, 17)
    draft.extend(features, cache, 0)
    want = plainly(features.double(), 21)
    assert (draft.draft(torch.tensor([21]), cache, 12) - want).abs().max() < 1e-4 * want.abs().max()


def test_a_window_hides_the_far_context() -> None:
    """A draft whose layers see 6 tokens is the draft of a shorter context, at the same positions."""
    raw = DRAFT | {"use_sliding_window": True, "sliding_window": 6, "layer_types": ["sliding_attention"] * 2}
    target, _ = pair()
    draft = DFlash(draft_config(raw, HERE), DRAFT_WEIGHTS, target)
    assert draft.config.shape.windows == (6, 6)
    results = []
    for poison in (0.0, 9.0):
        features, cache = features_of(target, TOKENS), Cache(draft.config.shape, 17, dtype=torch.float64)
        features[:6] += poison  # the root, at position 12, sees positions above 6
        draft.extend(features, cache, 0)
        results.append(draft.draft(torch.tensor([21]), cache, 12))
    torch.testing.assert_close(results[0], results[1])
    _, full = pair()
    full.extend(features_of(target, TOKENS), cache, 0)
    assert (full.draft(torch.tensor([21]), cache, 12) - results[0]).abs().max() > 1e-3


def test_training_passes_are_serving_passes() -> None:
    target, draft = pair()
    tokens = torch.tensor([TOKENS, TOKENS[::-1]])
    logits, features = target_forward(TARGET_WEIGHTS, target.config, tokens, draft.config.layer_ids)
    anchors = torch.tensor([[4, 11], [7, 1]])
    roots = tokens.gather(1, anchors)
    embedding, head = TARGET_WEIGHTS["model.embed_tokens.weight"], TARGET_WEIGHTS["lm_head.weight"]
    drafted = draft_forward(DRAFT_WEIGHTS, draft.config, features, roots, anchors, embedding, head)
    for text in range(2):
        row = tokens[text].tolist()
        torch.testing.assert_close(features[text], features_of(target, row))
        cache = Cache(target.config.shape, 12, dtype=torch.float64)
        hidden, _ = target.forward(tokens[text], torch.arange(12), cache, 0, features=False)
        torch.testing.assert_close(logits[text], target.logits(hidden))
        for block in range(2):
            at = int(anchors[text, block])
            want = plainly(features[text, :at], row[at])
            torch.testing.assert_close(drafted[text, block], want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("layers", "want"), [(36, (1, 9, 17, 25, 33)), (48, (1, 12, 23, 34, 45)), (28, (1, 7, 13, 19, 25))]
)
def test_default_layers_are_those_of_the_published_drafts(layers: int, want: tuple[int, ...]) -> None:
    # 36 and 48: the published configurations of Qwen3-4B/8B and Qwen3-Coder-30B-A3B; 28: the formula by hand
    assert default_layer_ids(layers, 5) == want


def test_one_layer_reads_the_middle() -> None:
    assert default_layer_ids(28, 1) == (14,)
