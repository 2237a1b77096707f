"""Greedy output is the same in every mode, whatever the tree, the chunk or the kind of lengths; and where it ends."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ddtree_kernels.decode.engine import Counts, Engine, PromptError
from ddtree_kernels.decode.graphs import CaptureError, capture, capture_error
from ddtree_kernels.decode.sampling import Sampling
from ddtree_kernels.decode.settings import Settings, SettingsError
from ddtree_kernels.ops.tree_accept import Accepted
from tests.decode.pairs import BLOCK, engine, pair

PROMPTS = ([1, 2, 3], [5, 0, 5, 0, 4, 4, 2, 1, 3], list(range(6)) * 3)
TOKENS = 24
OTHERS = (
    Settings("linear"),
    Settings("ddtree", 8),
    Settings("ddtree", 20, spine=True, draft_temperature=2.0, top_k=2),
    Settings("ddtree", 100),
    Settings("shadow-linear", 8),
)


def greedy(decoder: Engine, prompt: list[int], tokens: int = TOKENS, **options: Any) -> tuple[list[int], Counts]:
    counts = Counts()
    sampling = Sampling(tokens, temperature=0, **options)
    return [t for part in decoder.generate(prompt, sampling, 0, counts) for t in part], counts


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    """Autoregressive output, checked against one forward pass over all of it: each token is the last one's argmax."""
    one = pair()
    decoder = engine(one, Settings("autoregressive"))
    out = [greedy(decoder, prompt)[0] for prompt in PROMPTS]
    for prompt, answer in zip(PROMPTS, out, strict=True):
        tokens = torch.tensor(prompt + answer[:-1])
        cache = engine(one, Settings("autoregressive")).round.cache
        hidden, _ = one.target.forward(tokens, torch.arange(len(tokens)), cache, 0, features=False)
        assert one.target.logits(hidden)[len(prompt) - 1 :].argmax(-1).tolist() == answer
    assert len({tuple(answer) for answer in out}) == len(PROMPTS)
    return out


@pytest.mark.parametrize("settings", OTHERS, ids=lambda s: f"{s.mode}-{s.budget}")
def test_greedy_output_is_the_target_s_own(settings: Settings, expected: list[list[int]]) -> None:
    decoder = engine(pair(), settings, chunk=7)
    total = 0
    for prompt, want in zip(PROMPTS, expected, strict=True):
        have, counts = greedy(decoder, prompt)
        assert have == want
        assert counts.committed >= TOKENS - 1 and counts.contradictions == 0
        total += counts.committed - counts.rounds
    assert total > 0, "no drafted token was ever accepted: nothing was tested"


@pytest.mark.parametrize(
    "settings", [Settings("autoregressive"), OTHERS[0], OTHERS[1], OTHERS[4]], ids=lambda s: s.mode
)
def test_lengths_as_tensors_give_the_same_rounds(settings: Settings, expected: list[list[int]]) -> None:
    """The round as it is captured, here without a graph: another prompt's rows must not shine through."""
    static, eager = engine(pair(), settings, 96, static=True), engine(pair(), settings)
    for prompt, want in zip(PROMPTS[:2], expected, strict=False):
        have, counts = greedy(static, prompt)
        assert have == want
        assert counts == greedy(eager, prompt)[1]


@pytest.mark.parametrize(
    "settings", [Settings("autoregressive"), OTHERS[0], OTHERS[1], OTHERS[4]], ids=lambda s: s.mode
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernel is not interpreted here; test_gpu.py runs it")
def test_a_round_s_end_in_one_launch_is_the_same_end(settings: Settings) -> None:
    """The kernel that a captured round ends with, here under Triton's interpreter."""
    one = pair(torch.float32)
    plain, fused = (engine(one, settings, 96, static=True) for _ in range(2))
    plain.round.settles, fused.round.settles = False, True
    for prompt in PROMPTS[:2]:
        assert greedy(fused, prompt, 12) == greedy(plain, prompt, 12)
        for name in ("length", "root", "before"):
            assert torch.equal(getattr(fused.round.place, name), getattr(plain.round.place, name)), name


def test_shadow_emits_the_chain_and_counts_the_tree() -> None:
    one = pair()
    shadow, linear = engine(one, Settings("shadow-linear", 8)), engine(one, Settings("linear"))
    trees = engine(one, Settings("ddtree", 8, spine=True))
    for prompt in PROMPTS:
        (_, have), (_, chain), (_, tree) = (greedy(decoder, prompt) for decoder in (shadow, linear, trees))
        assert (have.rounds, have.committed) == (chain.rounds, chain.committed)
        assert have.contradictions == 0
        assert have.would >= have.committed
        assert have.longer > 0 and tree.rounds < chain.rounds


def test_a_tree_that_contradicts_its_chain_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A faulty accept kernel, put in its place: the shadow's output stays right and the disagreement is told."""
    decoder = engine(pair(), Settings("shadow-linear", 8))
    good = [greedy(decoder, prompt) for prompt in PROMPTS]
    plain = decoder.round._compare

    def faulty(walked: Accepted) -> torch.Tensor:
        nodes = walked.nodes.clone()
        nodes[0, 1:] = -1
        return plain(Accepted(nodes, torch.ones_like(walked.counts), walked.bonus))

    monkeypatch.setattr(decoder.round, "_compare", faulty)
    bad = [greedy(decoder, prompt) for prompt in PROMPTS]
    assert [tokens for tokens, _ in bad] == [tokens for tokens, _ in good]
    assert sum(counts.contradictions for _, counts in good) == 0
    assert 0 < sum(counts.contradictions for _, counts in bad) < sum(counts.rounds for _, counts in bad)


def test_shadow_needs_room_for_the_chain() -> None:
    with pytest.raises(SettingsError, match=f"at least {BLOCK - 1}"):
        Settings("shadow-linear", BLOCK - 2).fitted(BLOCK)
    assert Settings("shadow-linear", BLOCK - 1).fitted(BLOCK).spine


@pytest.mark.parametrize("given", [{"mode": "tree"}, {"budget": 0}, {"budget": 1025}, {"draft_temperature": 0.0},
                                   {"draft_temperature": float("nan")}, {"top_k": 0}])  # fmt: skip
def test_impossible_settings_are_named(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(given)).replace("_", ".")):
        Settings(**given)


@pytest.mark.parametrize("settings", [Settings("autoregressive"), Settings("ddtree", 8)], ids=lambda s: s.mode)
def test_it_ends_at_stop_tokens_at_the_limit_and_where_the_context_is_full(
    settings: Settings, expected: list[list[int]]
) -> None:
    decoder = engine(pair(), settings)
    for limit in (1, 2, 17):
        assert greedy(decoder, PROMPTS[1], limit)[0] == expected[1][:limit]
    for stop in sorted(set(expected[1]))[:2]:
        at = expected[1].index(stop)
        assert greedy(decoder, PROMPTS[1], stop_token_ids=(stop,))[0] == expected[1][: at + 1]
    short = engine(pair(), settings, 20)
    assert short.context == 20
    assert greedy(short, PROMPTS[1])[0] == expected[1][: 20 - len(PROMPTS[1])]


def test_prompts_that_cannot_be() -> None:
    decoder = engine(pair(), Settings("linear"), 20)
    for prompt, why in (([], "empty"), ([0] * 20, "20 tokens"), ([6], "token 6"), ([1, -1], "token -1")):
        with pytest.raises(PromptError, match=why):
            decoder.generate(prompt, Sampling(4), 0)
    assert len(greedy(decoder, [0] * 19)[0]) == 1


def test_closing_early_leaves_a_clean_decoder(expected: list[list[int]]) -> None:
    decoder = engine(pair(), Settings("ddtree", 8))
    steps = decoder.generate(PROMPTS[0], Sampling(40, temperature=0), 0)
    for _ in range(3):
        next(steps)
    steps.close()
    assert greedy(decoder, PROMPTS[1])[0] == expected[1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to capture on")
def test_a_failed_capture_names_batch_size_and_way_out() -> None:
    with pytest.raises(CaptureError, match="CPU"):
        capture(engine(pair(), Settings("linear"), static=True))
    text = str(capture_error("ddtree round, greedy", RuntimeError("CUDA error: out of memory\nmore lines")))
    assert text.startswith("Capture cuda graph failed: ") and "bs=1" in text and "\n" not in text
    assert "CUDA error: out of memory" in text and "--disable-cuda-graph" in text
