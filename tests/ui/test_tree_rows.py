"""What the Host panel says of the tree. The server info is synthetic; a contract test shows recorded ones."""

from __future__ import annotations

from typing import Any

import pytest

from ddtree_console.domain.snapshot import HttpState, ServiceSnapshot
from ddtree_console.ui.paint import width
from ddtree_console.ui.views import host


def rows(section: Any, wide: int) -> list[str]:
    info = {"internal_states": [{"ddtree": section}]} if section is not None else {}
    service = ServiceSnapshot("h/s", http=HttpState(status=200, path="/model_info", info=info))
    found = host.http_rows(service, None, 1.0, wide)
    assert all(width(row) <= wide for row in found)
    return ["".join(text for text, _ in row).strip() for row in found]


SECTION = {"mode": "shadow", "budget": 31, "rounds": 4000, "accept_length": 3.1, "tree_length": 4.41,
           "chain_length": 3.1, "gained": 5240, "shorter_rounds": 0, "astray_rounds": 0}  # fmt: skip


def test_the_shadows_verdict() -> None:
    text = rows(SECTION, 100)
    assert "ddtree   shadow · budget 31 · accept 3.10 · tree 4.41, chain 3.10" in text
    assert text[-1] == "the tree would have saved 1.31 tokens a round; enable with `e`"


@pytest.mark.parametrize("wide", [30, 45])
def test_it_wraps_and_loses_nothing(wide: int) -> None:
    assert " ".join(rows(SECTION, wide)).endswith("the tree would have saved 1.31 tokens a round; enable with `e`")


def test_without_the_plug_in_there_is_no_such_row() -> None:
    assert not any(line.startswith("ddtree") for line in rows(None, 100))
