"""Real drafter logits for tune_build: what the shipped tiny pair drafts behind held-back prompts."""

from __future__ import annotations

import functools

import torch

from ddtree_kernels.bench.decode_run import Clocked, engine_of
from ddtree_kernels.bench.decode_ways import prompts_of
from ddtree_kernels.decode.round import STAGES
from ddtree_kernels.decode.sampling import Sampling
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models import load_pair

TOKENS = 96
EVERY = 3
"""Rounds of an answer from one place to the next."""


@functools.cache
def places(count: int = 16) -> torch.Tensor:
    """[count, 15, 512] bfloat16 on the CPU: the drafter's logits of rounds from all families; fewer if answers end."""
    torch.set_num_threads(1)
    pair = load_pair("tiny", device=torch.device("cpu"), dtype=torch.float32)
    prompts = [of[0] for of in prompts_of(pair, 1).values()]
    engine = engine_of(pair, Settings("ddtree", 16), max(map(len, prompts)) + TOKENS)
    by_prompt: list[list[torch.Tensor]] = []
    for prompt in prompts:
        drafted: list[torch.Tensor] = []
        if isinstance(engine.round, Clocked):
            engine.round.times = dict.fromkeys(STAGES, 0.0)
        for _ in engine.generate(prompt, Sampling(TOKENS, temperature=0), 0):
            if engine.round.logits is not None:
                drafted.append(engine.round.logits.clone())
        by_prompt.append(drafted[EVERY::EVERY])
    turns = [of[turn] for turn in range(TOKENS) for of in by_prompt if turn < len(of)]
    return torch.stack(turns[:count]).bfloat16()
