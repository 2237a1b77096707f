"""What one request asks for, and the choice of a token from the target's logits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from ddtree_kernels.decode.highest import Copy, highest


@dataclass(frozen=True)
class Sampling:
    """max_new_tokens >= 1; temperature 0 = greedy; top_k 0 = all. stop: texts that end it, left out of the answer.
    ignore_eos: the model's own end tokens do not end it. seed: None = the next of the server's own."""

    max_new_tokens: int = 128
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None

    @property
    def greedy(self) -> bool:
        """Whether the highest logit is always taken."""
        return self.temperature == 0 or self.top_k == 1


class Chooser:
    """The choice of one token a row. Its numbers lie on the device, so that a captured round takes new ones."""

    def __init__(self, device: torch.device) -> None:
        self.generator = torch.Generator(device)
        self._numbers = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float32, device=device)
        self._top_k = torch.zeros(1, dtype=torch.int64, device=device)
        self.greedy = True
        self.filtered = False

    def set(self, sampling: Sampling, seed: int) -> None:
        """Takes over a request's numbers."""
        self.greedy = sampling.greedy
        self.filtered = sampling.top_p < 1 or sampling.top_k > 0 or sampling.min_p > 0
        numbers = [sampling.temperature or 1.0, sampling.top_p, sampling.min_p]
        self._numbers.copy_(torch.tensor(numbers))
        self._top_k.fill_(sampling.top_k)
        self.generator.manual_seed(seed)

    @contextmanager
    def kind(self, greedy: bool, filtered: bool) -> Iterator[None]:
        """Chooses so for a while: what a capture records."""
        before = self.greedy, self.filtered
        self.greedy, self.filtered = greedy, filtered
        try:
            yield
        finally:
            self.greedy, self.filtered = before

    def __call__(self, logits: torch.Tensor, copy: Copy | None = None) -> torch.Tensor:
        """int64 [n] from logits [n, V]: the highest (the lowest token of equals), or one independent sample a row.

        copy: one number that is copied on the way (highest.py)."""
        if self.greedy:
            return highest(logits, copy=copy)
        if copy is not None:
            copy[1].copy_(copy[0])
        values = logits if logits.dtype == torch.float64 else logits.float()
        probabilities = torch.softmax(values / self._numbers[0], dim=-1)
        if self.filtered:
            probabilities = self._keep(probabilities)
        # the smallest of exponential waiting times with these rates: a sample without a host synchronisation
        waits = torch.empty_like(probabilities).exponential_(generator=self.generator)
        return (probabilities / waits).argmax(dim=-1)

    def _keep(self, probabilities: torch.Tensor) -> torch.Tensor:
        """0 where top-k, top-p or min-p drop a token; the most probable one always stays. Not normalised."""
        ranked, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
        rank = torch.arange(ranked.shape[-1], device=ranked.device)
        kept = (rank < self._top_k) | (self._top_k <= 0)
        top_p = self._numbers[1]
        # a sum of many numbers may round above 1, where nothing is to be dropped
        kept = kept & ((ranked.cumsum(dim=-1) - ranked < top_p) | (top_p >= 1))
        kept = kept & (ranked >= ranked[..., :1] * self._numbers[2])
        return torch.zeros_like(probabilities).scatter(-1, tokens, ranked * (kept | (rank == 0)))
