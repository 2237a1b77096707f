"""Rounds captured as CUDA graphs, on a GPU: the tiny pair in bfloat16, as a server decodes it."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest
import torch

from ddtree_kernels.decode.engine import Counts, Engine
from ddtree_kernels.decode.job import Job, Part
from ddtree_kernels.decode.sampling import Sampling
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.decode.text import TextStream
from ddtree_kernels.decode.worker import Worker
from ddtree_kernels.models import load_pair
from ddtree_kernels.models.api import Pair
from ddtree_kernels.tiny.prompts import prompt_set
from tests.decode.distribution import drawn, p_same, undecided
from tests.decode.equality import BOUND, margin
from tests.decode.pairs import engine, served

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

ALL = (Settings("autoregressive"), Settings("linear"), Settings("ddtree", 16), Settings("shadow-linear", 16))
CONTEXT, TOKENS, SAMPLES = 512, 64, 600


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair("tiny", device="cuda", dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def decoders(pair: Pair) -> dict[str, Engine]:
    """By mode; captured once for all tests."""
    return {settings.mode: served(pair, settings, CONTEXT) for settings in ALL}


@pytest.fixture(scope="module")
def prompts(pair: Pair) -> list[list[int]]:
    """Of several lengths, the shortest between longer ones, so that old rows could shine through."""
    texts = [texts[0] for texts in prompt_set(1).values()]
    encoded = sorted((pair.tokenizer.encode(text) for text in texts), key=len)
    return [encoded[-1], encoded[0], *encoded[1:-1], encoded[-1][:1]]


def answer(decoder: Engine, prompt: list[int], tokens: int = TOKENS, seed: int = 0, **options: Any) -> list[int]:
    sampling = Sampling(tokens, **{"temperature": 0.0, "ignore_eos": True, **options})
    return [t for part in decoder.generate(prompt, sampling, seed, Counts()) for t in part]


@pytest.mark.parametrize("mode", [settings.mode for settings in ALL])
def test_captured_rounds_are_the_eager_ones(decoders: dict[str, Engine], prompts: list[list[int]], mode: str) -> None:
    decoder = decoders[mode]
    captured = [answer(decoder, prompt) for prompt in prompts]
    graphs, decoder.graphs = decoder.graphs, {}
    try:
        eager = [answer(decoder, prompt) for prompt in prompts]
    finally:
        decoder.graphs = graphs
    assert captured == eager
    assert [answer(decoder, prompt) for prompt in prompts] == captured, "a replay is not the first one again"


@pytest.mark.parametrize("mode", ["linear", "ddtree", "shadow-linear"])
def test_answers_are_autoregressive_s_but_for_close_calls(
    pair: Pair, decoders: dict[str, Engine], prompts: list[list[int]], mode: str
) -> None:
    counts = Counts()
    for prompt in prompts:
        want = answer(decoders["autoregressive"], prompt)
        sampling = Sampling(TOKENS, temperature=0, ignore_eos=True)
        have = [t for part in decoders[mode].generate(prompt, sampling, 0, counts) for t in part]
        assert len(have) == TOKENS
        at = next((i for i, (a, b) in enumerate(zip(have, want, strict=True)) if a != b), None)
        if at is not None:
            assert margin(pair, [*prompt, *want[:at]]) <= BOUND[torch.bfloat16]
    assert counts.contradictions == 0
    assert counts.committed / counts.rounds > 1.2, "next to nothing was accepted: nothing was tested"


def test_without_graphs_the_answers_are_the_same(
    pair: Pair, decoders: dict[str, Engine], prompts: list[list[int]]
) -> None:
    """--disable-cuda-graph: lengths are ints, and only what was accepted is given to the drafter."""
    plain = engine(pair, ALL[2], CONTEXT)
    for prompt in prompts[:3]:
        want, have = answer(decoders["ddtree"], prompt), answer(plain, prompt)
        at = next((i for i, (a, b) in enumerate(zip(have, want, strict=True)) if a != b), None)
        assert at is None or margin(pair, [*prompt, *want[:at]]) <= BOUND[torch.bfloat16]


def test_sampled_rounds_draw_as_autoregressive_ones(pair: Pair, decoders: dict[str, Engine]) -> None:
    prompt = undecided(pair, pair.tokenizer.encode(prompt_set(1)["log"][0]))
    plain = drawn(decoders["autoregressive"], prompt, 1.0, SAMPLES, 1)
    for seed, mode in enumerate(("linear", "ddtree", "shadow-linear"), 2):
        assert p_same(plain, drawn(decoders[mode], prompt, 1.0, SAMPLES, seed)) > 1e-4, mode
    hot = drawn(decoders["ddtree"], prompt, 3.0, SAMPLES, 5)
    assert p_same(plain, hot) < 1e-6, "the captured round does not read the request's temperature"


def test_a_seed_gives_the_same_tokens_again(decoders: dict[str, Engine], prompts: list[list[int]]) -> None:
    def run(seed: int, **options: Any) -> list[int]:
        return answer(decoders["ddtree"], prompts[1], seed=seed, **{"temperature": 1.5, **options})

    first = run(5)
    assert run(6) != first
    assert run(5) == first, "something is left of the request before"
    greedy = answer(decoders["ddtree"], prompts[1])
    assert run(7, top_k=1) == greedy
    assert run(7, temperature=1.0, top_p=1e-6)[:8] == greedy[:8], "the captured round does not read the request's top-p"


def test_nothing_is_written_behind_the_cache(pair: Pair, prompts: list[list[int]]) -> None:
    """Answers to the last row of the context; the round that ran ahead must not reach behind what is reserved."""
    for settings in ALL[1:3]:
        decoder = served(pair, settings, 100)
        prompt = prompts[0][:40]
        full = answer(decoder, prompt, 1000)
        torch.cuda.synchronize()
        assert len(full) == decoder.context - len(prompt) == 60
        assert answer(decoder, prompt, 1000) == full
        # `before`: where the round that ran ahead began
        assert 100 <= int(decoder.round.place.before) + decoder.round.nodes <= decoder.round.cache.rows


def test_a_cancelled_request_leaves_nothing_behind(decoders: dict[str, Engine], prompts: list[list[int]]) -> None:
    decoder = decoders["ddtree"]
    want = answer(decoder, prompts[1])
    worker = Worker(decoder)
    began, ended = threading.Event(), [threading.Event() for _ in range(2)]
    parts: list[list[Part]] = [[], []]

    def job(which: int, prompt: list[int], tokens: int) -> Job:
        def give(part: Part) -> None:
            parts[which].append(part)
            began.set()
            if part.end is not None:
                ended[which].set()

        sampling = Sampling(tokens, temperature=0, ignore_eos=True)
        return Job(prompt, sampling, TextStream(decoder.pair.tokenizer.decode), give)

    long, after = job(0, prompts[0], 10_000), job(1, prompts[1], TOKENS)
    worker.submit(long)
    worker.submit(after)
    worker.start()
    assert began.wait(20)
    worker.cancel(long)
    assert all(event.wait(20) for event in ended)
    worker.close(1)
    assert [t for part in parts[1] for t in part.tokens] == want
    assert parts[0][-1].end is not None and parts[0][-1].end["type"] in ("abort", "length")


BROKEN = """
import torch
from ddtree_kernels.decode.graphs import CaptureError, capture
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models import load_pair
from tests.decode.pairs import engine
decoder = engine(load_pair("tiny", device="cuda", dtype=torch.bfloat16), Settings("linear"), 256, static=True)
plain = decoder.round.accept
decoder.round.accept = lambda: (plain(), decoder.round.chosen.tolist())
try:
    capture(decoder)
except CaptureError as error:
    print(error)
"""


def test_a_failed_capture_says_why() -> None:
    """In a process of its own: torch's generators and streams are not to be trusted after it."""
    ran = subprocess.run([sys.executable, "-c", BROKEN], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    text = ran.stdout.strip()
    assert text.startswith("Capture cuda graph failed: linear round, greedy, bs=1: ") and "\n" not in text
    assert "--disable-cuda-graph" in text and "captur" in text.split("bs=1: ")[1].split("Possible")[0], text
