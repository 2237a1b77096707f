"""Step times of a pair of Qwen3-8B's shape with random weights, on a GPU.

What it accepts means nothing; what a round's parts cost behind 8k of context is what they cost the real pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from ddtree_kernels.bench.decode_stages import WHOLE, stage_us
from ddtree_kernels.decode.round import STAGES
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models import DFlash, DraftConfig, LayerShape, Pair, Qwen3, TargetConfig, draft_names, target_names
from ddtree_kernels.models.api import Rope
from ddtree_kernels.models.tokenizer import Tokenizer

CONTEXT = 8192
BLOCK = 16
BUDGETS = (15, 64, 256)
"""T 16 as the chain's, T 65 that the project's goal names, and a wide one."""
_VOCABULARY = 151936


def _shape(layers: int) -> LayerShape:
    return LayerShape(
        hidden_size=4096, intermediate_size=12288, num_hidden_layers=layers, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, rms_norm_eps=1e-6, rope=Rope(1_000_000.0), attention_bias=False,
        max_position_embeddings=40960, windows=(None,) * layers,
    )  # fmt: skip


def _random(names: dict[str, tuple[int, ...]], device: torch.device) -> dict[str, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    return {
        name: torch.ones(size, dtype=torch.bfloat16, device=device)
        if len(size) == 1
        else torch.randn(size, dtype=torch.bfloat16, device=device, generator=generator) * size[-1] ** -0.5
        for name, size in names.items()
    }


def big_pair(device: torch.device, layers: int = 36, draft_layers: int = 5) -> Pair:
    """Qwen3-8B's target of 36 layers and a drafter of 5 with blocks of 16: 18 GB in bfloat16. No vocabulary of words.

    Fewer layers launch the same kernels.
    """
    config = TargetConfig(_shape(layers), _VOCABULARY, False, (), "Qwen3ForCausalLM")
    target = Qwen3(config, _random(target_names(config), device), drop=True)
    step = max(1, (layers - 4) // 4)
    ids = tuple(min(layers - 1, 1 + i * step) for i in range(5 if layers > 5 else 1))
    draft_config = DraftConfig(_shape(draft_layers), _VOCABULARY, BLOCK, _VOCABULARY - 1, ids, layers)
    draft = DFlash(draft_config, _random(draft_names(draft_config), device), target, drop=True)
    target.layer_ids = draft_config.layer_ids
    return Pair(target, draft, Tokenizer.__new__(Tokenizer), Path("random"))


def ways() -> list[Settings]:
    """What is timed."""
    return [Settings("autoregressive"), Settings("linear"), *(Settings("ddtree", budget) for budget in BUDGETS)]


def big_rows(device: torch.device) -> Iterator[str]:
    """A Markdown table: microseconds of each stage and of the whole round; then verify of T 65 by that of T 16."""
    pair = big_pair(device)
    yield ""
    yield f"Qwen3-8B-shaped pair, random weights, bfloat16, context {CONTEXT}; µs a round, each part as a graph"
    yield ""
    yield f"| mode | T | {' | '.join(STAGES)} | {WHOLE} |"
    yield "|---" * (len(STAGES) + 3) + "|"
    verify: dict[int, float] = {}
    for settings in ways():
        parts = stage_us(pair, settings, CONTEXT)
        nodes = settings.nodes(BLOCK)
        if settings.trees:
            verify[nodes] = parts["verify"]
        cells = (settings.mode, nodes, *(f"{us:.0f}" for us in parts.values()))
        yield f"| {' | '.join(map(str, cells))} |"
    narrow, *wider = sorted(verify)
    ratios = ", ".join(f"T {nodes} {verify[nodes] / verify[narrow]:.2f}" for nodes in wider)
    yield ""
    yield f"verify of trees, by that of T {narrow}: {ratios} (goal: T 65 at most 1.25)"
