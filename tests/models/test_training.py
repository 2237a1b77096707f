"""Training resumes where it was, goes down, and its rollouts are what the served target says."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from ddtree_kernels.models import Qwen3, load_pair, target_names
from ddtree_kernels.tiny import train
from ddtree_kernels.tiny.batched import fresh, target_forward
from ddtree_kernels.tiny.measure import greedy
from ddtree_kernels.tiny.rollouts import continuations
from ddtree_kernels.tiny.shapes import DRAFT, TARGET


class Interrupted(Exception):
    """Stands for whatever ends a run."""


def fitted(work: Path, stop_at: int | None = None) -> torch.Tensor:
    """A small matrix fitted for 12 steps in this folder, unless it is stopped before."""
    weights = {"m": torch.full((4, 4), 0.5, requires_grad=True), "embed": torch.ones(3, 4, requires_grad=True)}

    def loss_of(step: int) -> torch.Tensor:
        if step == stop_at:
            raise Interrupted
        asked = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        return ((asked @ weights["m"] - asked.flip(1)) ** 2).mean() + (weights["embed"] ** 2).mean()

    train.fit("toy", work, weights, 12, 0.1, loss_of, save_after=0.0)
    return torch.cat([weights["m"], weights["embed"]]).detach()


def test_an_interrupted_run_ends_as_a_whole_one(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole = fitted(tmp_path / "a")
    with pytest.raises(Interrupted):
        fitted(tmp_path / "b", stop_at=7)
    torch.testing.assert_close(fitted(tmp_path / "b", stop_at=6), whole)  # steps before the seventh are not run again


def test_rates_rise_stay_and_fall() -> None:
    shares = [train.rate(step, 1000) for step in range(1000)]
    assert shares[:20] == pytest.approx([(step + 1) / 20 for step in range(20)])
    assert shares[20:600] == [1.0] * 580
    assert shares[-1] == 0.01
    assert all(a >= b for a, b in pairwise(shares[600:]))


def test_rollouts_are_what_the_target_says() -> None:
    config = train.TARGET_CONFIG
    weights = {name: tensor.detach() for name, tensor in fresh(target_names(config), 5, 3, "cpu").items()}
    target = Qwen3(config, weights)
    target.layer_ids = (0,)
    prompts = torch.tensor([[7, 200, 31], [11, 12, 13], [300, 4, 4]])
    said = continuations(target, prompts, 9, torch.zeros(3), torch.Generator().manual_seed(1))
    for row, prompt in zip(said.tolist(), prompts.tolist(), strict=True):
        alone, _ = greedy(target, prompt, 9)
        assert row[: len(alone)] == alone


def test_sampling_follows_the_probabilities() -> None:
    config = train.TARGET_CONFIG
    weights = {name: tensor.detach() for name, tensor in fresh(target_names(config), 5, 3, "cpu").items()}
    weights["model.embed_tokens.weight"] *= 8  # spreads the logits
    target = Qwen3(config, weights)
    prompts = torch.tensor([[7, 200, 31]]).expand(4000, -1)
    said = continuations(target, prompts, 1, torch.ones(4000), torch.Generator().manual_seed(1))[:, 3]
    logits, _ = target_forward(weights, config, prompts[:1])
    want = torch.softmax(logits[0, -1].float(), dim=-1)
    have = torch.bincount(said, minlength=512) / 4000
    likely = want > 0.01
    assert likely.sum() > 3
    assert ((have - want).abs()[likely] < 5 * (want * (1 - want) / 4000).sqrt()[likely]).all()


def test_all_stages_make_a_pair_that_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "ROLLOUT_STEPS", 6)
    counts = {"--target-steps": 3, "--target-batch": 2, "--length": 40, "--rollouts": 1, "--rollout-size": 3}
    counts |= {"--draft-steps": 3, "--draft-batch": 2, "--blocks": 2, "--threads": torch.get_num_threads()}
    options = ["--work", str(tmp_path), "--device", "cpu", *(str(part) for pair in counts.items() for part in pair)]
    assert train.main(options) == 0
    pair = load_pair(tmp_path / "pair")
    assert pair.draft is not None
    assert json.loads((tmp_path / "pair" / "draft" / "config.json").read_text()) == DRAFT
    assert pair.target.config.stop_ids == tuple(TARGET["eos_token_id"])
    made = (tmp_path / "pair" / "target" / "model.safetensors").read_bytes()
    assert train.main(options) == 0  # everything is there: only read and written again
    assert (tmp_path / "pair" / "target" / "model.safetensors").read_bytes() == made
