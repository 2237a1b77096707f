"""A rotary base that is lost, and the predicted buffers against sizes worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from ddtree_kernels.sglang_plugin import buffers, rope


@pytest.mark.parametrize(
    ("raw", "seen", "warns"),
    [
        ({"rope_theta": 10_000_000}, None, True),
        ({"rope_parameters": {"rope_theta": 1e7, "rope_type": "default"}}, None, True),
        ({"rope_theta": 1_000_000}, None, False),
        ({"rope_theta": 1e7}, 1e7, False),
        ({"rope_theta": 1e6}, 1e4, True),
        ({}, None, False),
        ({"rope_theta": "1e7"}, None, False),
        ({"rope_theta": True, "rope_parameters": [1]}, None, False),
    ],
)
def test_rope(raw: dict[str, Any], seen: Any, warns: bool) -> None:
    text = rope.warning(raw, seen)
    assert bool(text) is warns and "\n" not in text


def test_buffers_of_a_qwen3_at_64_rows() -> None:
    """Eight requests at a context of 40,960 and a vocabulary of 151,936: 512 rows."""
    found = buffers.predict(64, 8, 40_960, 151_936, 16, 128, 8, 5 * 1024)
    assert found.logits == 512 * 151_936 * 4 == 311_164_928
    assert found.indices + found.mask == 512 * 40_960 * 9
    assert found.scratch == 512 * 16 * 8 * (128 + 1) * 4
    assert found.features == 512 * 5120 * 2
    text = buffers.line(64, 8, 40_960, found)
    assert (
        text.startswith("DDTREE buffers for 64 rows x 8 requests at context 40960: ")
        and "(logits 297, indices 160, mask 20, " in text
    )
