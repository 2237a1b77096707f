"""The generated text: the same for a seed, right where it computes, and never a held-back prompt in training."""

from __future__ import annotations

import ast
import re
from itertools import islice, pairwise

import pytest

from ddtree_kernels.tiny.prompts import UNTRAINED, held_back, prompt_set, untrained
from ddtree_kernels.tiny.text import FAMILIES, as_text, examples


def some(family: str, count: int = 60) -> list[tuple[str, str]]:
    return [(example.prompt, example.answer) for example in islice(examples("a test", (family,)), count)]


def test_a_seed_fixes_all_of_it() -> None:
    first, again = (list(islice(examples("s"), 50)) for _ in range(2))
    assert first == again
    assert first != list(islice(examples("t"), 50))


@pytest.mark.parametrize(("family", "sign"), [("addition", "+"), ("multiplication", "x")])
def test_every_worked_line_is_true(family: str, sign: str) -> None:
    for prompt, answer in some(family):
        lines = re.findall(r"(\d+(?: [+x] \d+)+) = (\d+)", answer)
        assert lines
        for left, right in lines:
            assert eval(left.replace("x", "*")) == int(right)
        a, b = map(int, re.findall(r"\d+", prompt))
        assert re.findall(r"\d+", answer)[-1] == str(a + b if sign == "+" else a * b)


def test_sorted_rows_are_sorted() -> None:
    for prompt, answer in some("sorting"):
        numbers = sorted(map(int, re.findall(r"\d+", prompt)))
        assert answer.split("Sorted: ")[1] == " ".join(map(str, numbers)) + "."


def test_programs_compile() -> None:
    for _, answer in some("program"):
        assert isinstance(ast.parse(answer).body[0], ast.FunctionDef)


def test_clocks_never_go_back_but_at_midnight() -> None:
    for _, answer in some("log"):
        at = [line[:8] for line in answer.splitlines()]
        assert all(a <= b or a.startswith("23") for a, b in pairwise(at))


def test_training_never_sees_a_held_back_prompt() -> None:
    trained = {example.prompt for example in islice(examples("target 1 0"), 3000)}
    for family in FAMILIES:
        kept = held_back(family, 20)
        assert len(kept) == 20
        assert not trained & {example.prompt for example in kept}


def test_the_untrained_family_is_in_no_training_text() -> None:
    assert UNTRAINED not in FAMILIES
    trained = "".join(example.answer for example in islice(examples("target 1 0"), 2000))
    assert all(example.answer.split(",")[0] not in trained for example in untrained(20))


def test_prompts_are_both_chats_and_completions() -> None:
    prompts = prompt_set(4)
    assert list(prompts) == [*FAMILIES, UNTRAINED]
    for texts in prompts.values():
        assert [text.startswith("<|im_start|>user\n") for text in texts] == [False, True, False, True]


def test_as_text_ends_with_a_stop_token() -> None:
    example = next(examples("s"))
    assert as_text(example, chat=False) == (f"{example.prompt}\n", f"{example.answer}<|endoftext|>")
    assert as_text(example, chat=True)[1] == f"{example.answer}<|im_end|>\n"
