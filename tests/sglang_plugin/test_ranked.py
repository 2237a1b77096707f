"""Ranks and log-probabilities of drafted positions; rank 0 is argmax's own choice."""

from __future__ import annotations

import pytest
import torch

from ddtree_kernels.sglang_plugin.ranked import ROWS, rank


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_against_log_softmax(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    logits = torch.randn(ROWS + 5, 300).to(dtype) * 4
    found = rank(logits, 8)
    assert found.ids.shape == (ROWS + 5, 8) and found.ids.dtype == torch.int64
    wanted = torch.log_softmax(logits.double(), dim=-1)
    off = (found.log_probs.double() - wanted.gather(1, found.ids)).abs()
    assert float(off.max()) < 1e-4, (off.max(), off.argmax())
    rises = found.log_probs[:, 1:] - found.log_probs[:, :-1]
    assert float(rises.max()) <= 0, (rises.max(), rises.argmax())
    assert found.first.tolist() == logits.argmax(dim=-1).tolist()
    assert all(len(set(row)) == 8 for row in found.ids.tolist())


def test_ties_follow_argmax() -> None:
    logits = torch.zeros(4, 50)
    logits[1, 40] = logits[1, 7] = 3.0
    logits[2, :] = 1.0
    ids = rank(logits, 5).to_lists(1)[1][0]
    assert [row[0] for row in ids] == logits.argmax(dim=-1).tolist()
    assert all(len(set(row)) == 5 for row in ids)
    assert set(ids[1][:2]) == {7, 40}


def test_no_value_stops_it() -> None:
    logits = torch.full((3, 6), float("-inf"))
    logits[1, 2], logits[2, 3] = float("nan"), 1.0
    log_probs, ids = rank(logits, 4).to_lists(3)
    assert [len(rows) for rows in ids] == [1, 1, 1] and all(len(set(rows[0])) == 4 for rows in ids)
    assert ids[2][0][0] == 3 and log_probs[2][0][0] == pytest.approx(0.0)


def test_lists_are_cut_by_request() -> None:
    logits = torch.arange(4 * 6, dtype=torch.float32).view(4, 6)
    log_probs, ids = rank(logits, 2).to_lists(2)
    assert ids == [[[5, 4], [5, 4]], [[5, 4], [5, 4]]] and len(log_probs) == 2
