"""The target's own token after each node: argmax, and samples that follow the request's settings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from ddtree_kernels.sglang_plugin import sampling


def info(temperatures: list[float], **more: Any) -> Any:
    """As SGLang's SamplingBatchInfo."""
    count = len(temperatures)
    given: dict[str, Any] = {
        "temperatures": torch.tensor(temperatures).view(-1, 1), "top_ks": torch.full((count,), 1 << 30),
        "top_ps": torch.ones(count), "min_ps": torch.zeros(count), "is_all_greedy": False,
        "need_top_k_sampling": False, "need_top_p_sampling": False, "need_min_p_sampling": False,
    }  # fmt: skip
    return SimpleNamespace(**{**given, **more})


def test_greedy() -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 9)
    wanted = logits.argmax(dim=-1)
    assert torch.equal(sampling.choose(logits, None, 3), wanted)
    assert torch.equal(sampling.choose(logits, info([1.0, 1.0], is_all_greedy=True), 3), wanted)


def test_a_greedy_request_beside_one_that_samples() -> None:
    torch.manual_seed(0)
    logits = torch.randn(128, 9) * 0.1
    both = info([1.0, 1.0], top_ks=torch.tensor([1, 1 << 30]), need_top_k_sampling=True)
    for _ in range(20):
        got = sampling.choose(logits, both, 64)
        assert torch.equal(got[:64], logits[:64].argmax(dim=-1))
    assert len(set(got[64:].tolist())) > 1


def test_frequencies_follow_the_temperature() -> None:
    """2000 draws of each of two requests: each token within 4 standard deviations of its probability."""
    torch.manual_seed(3)
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    draws = 2000
    got = sampling.choose(logits.expand(2 * draws, 4).clone(), info([0.7, 2.0]), draws).view(2, draws)
    for row, temperature in zip(got, (0.7, 2.0), strict=True):
        wanted = torch.softmax(logits / temperature, dim=-1)
        found = torch.bincount(row, minlength=4) / draws
        assert bool(((found - wanted).abs() < 4 * (wanted * (1 - wanted) / draws).sqrt()).all())


def test_filters_leave_only_what_they_should() -> None:
    probs = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).expand(3, 4).contiguous()
    rows = torch.arange(3)
    asked = info(
        [1.0] * 3, top_ks=torch.tensor([2, 4, 4]), top_ps=torch.tensor([1.0, 0.6, 1.0]),
        min_ps=torch.tensor([0.0, 0.0, 0.2]), need_top_k_sampling=True, need_top_p_sampling=True,
        need_min_p_sampling=True,
    )  # fmt: skip
    kept = sampling.filtered(probs, asked, rows, sampling.keep_top_k, sampling.keep_top_p) > 0
    assert kept.tolist() == [[True, True, False, False], [True, True, False, False], [True, True, True, False]]
    # top-p judges the unfiltered probabilities: 0.5 alone does not reach 0.6, also where top-k leaves two
    both = info([1.0], top_ks=torch.tensor([2]), top_ps=torch.tensor([0.6]), need_top_k_sampling=True,
                need_top_p_sampling=True)  # fmt: skip
    one = sampling.filtered(probs[:1], both, rows[:1], sampling.keep_top_k, sampling.keep_top_p) > 0
    assert one.tolist() == [[True, True, False, False]]
