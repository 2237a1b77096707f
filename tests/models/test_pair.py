"""The shipped pair is what its README says: its size, its form, and that it drafts well on prompts it never saw."""

from __future__ import annotations

import json
from functools import cache

import pytest
import torch

from ddtree_kernels import tiny
from ddtree_kernels.models import Pair, load_pair, load_tokenizer, weight_bytes_of
from ddtree_kernels.models.libraries import library
from ddtree_kernels.tiny.measure import LINEAR, Tally, accept_lengths, greedy, last_line_right
from ddtree_kernels.tiny.prompts import held_back
from ddtree_kernels.tiny.shapes import DRAFT, TARGET
from ddtree_kernels.tiny.text import FAMILIES, as_text

MOST_BYTES = 16 * 2**20


@cache
def pair() -> Pair:
    return load_pair("tiny")


def test_it_is_small_bf16_and_of_the_two_architectures() -> None:
    files = [file for file in tiny.path().rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    for name, config in (("target", TARGET), ("draft", DRAFT)):
        folder = tiny.path() / name
        assert json.loads((folder / "config.json").read_text(encoding="utf-8")) == config
        with library("safetensors").safe_open(str(folder / "model.safetensors"), framework="pt") as opened:
            assert {opened.get_slice(key).get_dtype() for key in opened.keys()} == {"BF16"}  # noqa: SIM118 (no mapping)
        assert weight_bytes_of(folder, torch.bfloat16) == weight_bytes_of(folder)


def test_every_byte_can_be_said() -> None:
    tokenizer = load_tokenizer(tiny.path() / "target")
    for text in ("12 + 30, step by step.\n", "äöü 漢字 🙂\t\x00", "<|im_start|>user\nhi<|im_end|>\n"):
        ids = tokenizer.encode(text)
        assert tokenizer.raw.decode(ids, skip_special_tokens=False) == text
    assert tokenizer.encode("<|endoftext|><|im_start|><|im_end|><|mask|>") == [0, 1, 2, 3]
    assert tokenizer.decode([1, *tokenizer.encode("hi"), 2]) == "hi"
    assert tokenizer.vocab_size == TARGET["vocab_size"]


@pytest.mark.parametrize("family", ["addition", "multiplication"])
def test_it_answers_held_back_prompts_and_stops(family: str) -> None:
    right = 0
    for i, example in enumerate(held_back(family, 4, seed="a test")):
        prompt = pair().tokenizer.encode(as_text(example, chat=i % 2 == 1)[0])
        said, _ = greedy(pair().target, prompt, 160)
        assert said[-1] in TARGET["eos_token_id"]
        right += last_line_right(example, pair().tokenizer.decode(said[len(prompt) :]))
    assert right >= 2


def test_drafts_are_worth_their_round() -> None:
    tallies = {budget: Tally() for budget in (LINEAR, 64)}
    for family in FAMILIES:
        for i, example in enumerate(held_back(family, 1, seed="a test")):
            prompt = pair().tokenizer.encode(as_text(example, chat=i % 2 == 1)[0])
            accept_lengths(pair(), prompt, 120, tallies)
    assert tallies[LINEAR].length > 2.0
    assert tallies[64].length > 1.1 * tallies[LINEAR].length
