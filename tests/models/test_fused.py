"""The fused steps are the plain ones: whole passes of both models, on a GPU or under Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from ddtree_kernels.models.api import DraftConfig, Pair, Rope, TargetConfig
from ddtree_kernels.models.cache import Cache
from ddtree_kernels.models.dflash import DFlash, draft_names
from ddtree_kernels.models.qwen3 import Qwen3, target_names
from ddtree_kernels.models.trunk import Trunk
from ddtree_kernels.ops.tree_attention.reference import tree_bits
from tests.decode.pairs import BLOCK, Letters, shape, weights

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZE = 64 if DEVICE == "cuda" else 16
ROWS, VOCABULARY = 64, 40
LENGTH, OLD = 6, 2
PROMPT = torch.arange(LENGTH, device=DEVICE) * 7 % VOCABULARY


def made(dtype: torch.dtype, kind: str) -> Pair:
    """A random pair: plain, with biases and unequal norms, or with YaRN."""
    rope = Rope(1e4) if kind != "yarn" else Rope(1e4, "yarn", 4.0, 8, attention_factor=1.1386)
    ours = replace(shape(2), head_dim=SIZE, attention_bias=kind == "biases", rope=rope)

    def random(names: dict[str, tuple[int, ...]], seed: int) -> dict[str, torch.Tensor]:
        out = weights(names, torch.float64, seed, 0.3)
        generator = torch.Generator().manual_seed(seed)
        for name, size in names.items():
            if len(size) == 1:
                out[name] = torch.rand(size, generator=generator, dtype=torch.float64) + 0.5
        # rounded alike for every type, so that only the arithmetic differs
        return {name: (one * 0.3 if one.dim() == 2 else one).bfloat16().to(DEVICE, dtype) for name, one in out.items()}

    config = TargetConfig(ours, VOCABULARY, False, (), "Qwen3ForCausalLM")
    target = Qwen3(config, random(target_names(config), 1))
    # out of order and one of them twice, as a config.json may have it
    draft_config = DraftConfig(replace(ours, num_hidden_layers=1, windows=(None,)), VOCABULARY, BLOCK, 39, (1, 0, 1), 2)
    target.layer_ids = draft_config.layer_ids
    return Pair(target, DFlash(draft_config, random(draft_names(draft_config), 2), target), Letters(VOCABULARY), None)  # type: ignore[arg-type]


def passes(pair: Pair, number: Any) -> list[torch.Tensor]:
    """Prompt, a tree with a padded node, a draft with older rows ahead of it; results and caches."""
    target, draft = pair.target, pair.draft
    assert isinstance(target, Qwen3) and isinstance(draft, DFlash)
    cache = Cache(target.config.shape, ROWS, DEVICE, target.dtype)
    own = Cache(draft.config.shape, ROWS, DEVICE, target.dtype)
    hidden, features = target.forward(PROMPT, None, cache, number(0))
    assert features is not None
    out = [hidden, features]
    draft.extend(features[:-OLD], own, number(0))
    # two rows are old, and two behind them were not accepted: the block's rows go there
    given = torch.cat([features[-OLD:], features[:2]])
    out.append(draft.draft(PROMPT[-1:], own, number(LENGTH), pending=(given, number(LENGTH - OLD))))
    tokens = torch.tensor([3, 5, 8, 2, -1], device=DEVICE)
    words = torch.tensor([[1], [3], [5], [13], [0]], device=DEVICE)
    depths = torch.tensor([0, 1, 1, 2, -1], device=DEVICE, dtype=torch.int32)
    assert tree_bits(words, 5)[3].tolist() == [True, False, True, True, False]
    hidden, features = target.forward(tokens, None, cache, number(LENGTH), depths=depths, visibility=words)
    assert features is not None
    out += [hidden[:4], target.logits(hidden[:4]), features[:4]]
    out += [cache.storage[:, :, :, : LENGTH + 4], own.storage[:, :, :, : LENGTH + BLOCK]]
    return out


@pytest.mark.parametrize(
    ("dtype", "kind", "tensors"),
    [(torch.float32, "plain", False), (torch.float32, "biases", True), (torch.float32, "yarn", True),
     (torch.bfloat16, "plain", True)],
    ids=["ints", "biases", "yarn", "bfloat16"],
)  # fmt: skip
def test_a_pass_is_the_plain_one(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, kind: str, tensors: bool) -> None:
    number: Any = (lambda value: torch.tensor([value], device=DEVICE)) if tensors else int
    exact = made(torch.float64, kind)
    monkeypatch.setattr(Trunk, "fuses", False)
    want, plain = passes(exact, number), passes(made(dtype, kind), number)
    monkeypatch.setattr(Trunk, "fuses", True)
    have = passes(made(dtype, kind), number)
    for i, (one, two, three) in enumerate(zip(have, plain, want, strict=True)):
        assert one.dtype == two.dtype == dtype and one.shape == two.shape == three.shape
        off, of_plain = (float((part.double() - three).norm() / three.norm()) for part in (one, two))
        # coarse types: not much farther from the exact result than plain torch is; the interpreter does not round
        assert off <= (2e-5 if dtype == torch.float32 else 2.5 * of_plain), (i, off, of_plain)
