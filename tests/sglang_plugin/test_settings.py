"""Budget, mode and ranks: flags, environment, what cannot be used."""

from __future__ import annotations

import pytest

from ddtree_kernels.sglang_plugin import settings
from ddtree_kernels.sglang_plugin.settings import Refused, Settings


@pytest.mark.parametrize(
    ("env", "width", "block", "wanted"),
    [
        ({}, None, 16, Settings("tree", 31, 16, 31)),
        ({}, None, 64, Settings("tree", 63, 64, 63)),
        ({}, 65, 16, Settings("tree", 64, 16, 64)),
        ({"DDTREE_BUDGET": "15"}, 65, 16, Settings("tree", 15, 16, 15)),
        ({"DDTREE_MODE": "Shadow", "DDTREE_BUDGET": " 127 "}, None, 16, Settings("shadow", 127, 16, 64)),
        ({"DDTREE_TOPK": "4", "DDTREE_MODE": ""}, 32, 16, Settings("tree", 31, 16, 4)),
        ({"DDTREE_TEST_BREAK_MASK": "serve"}, 32, 16, Settings("tree", 31, 16, 31, "serve")),
    ],
)
def test_read(env: dict[str, str], width: int | None, block: int, wanted: Settings) -> None:
    made = settings.read(env, width, block)
    assert made == wanted and made.width == wanted.budget + 1 and made.spine == block - 1


@pytest.mark.parametrize("name", ["DDTREE_BUDGET", "DDTREE_TOPK"])
@pytest.mark.parametrize("text", ["x", "-1", "1.5", "٣", "0x10"])
def test_no_number(name: str, text: str) -> None:
    with pytest.raises(Refused, match=f"{name} is '.*', not a whole number"):
        settings.read({name: text}, None, 16)


@pytest.mark.parametrize("name", ["DDTREE_MODE", "DDTREE_TEST_BREAK_MASK"])
def test_no_such_word(name: str) -> None:
    with pytest.raises(Refused, match=f"{name} is 'linear', none of"):
        settings.read({name: "linear"}, None, 16)
