"""What an attempt was made of, from the host's own record of it."""

from __future__ import annotations

from typing import Any

import pytest

from ddtree_console.domain.spec import Profile, Secret, Speculative
from ddtree_console.services import kept
from ddtree_console.services.wire import profile_json

EDITED = Profile(
    "shadow-small-edited",
    model="/models/qwen3.6-27b",
    flags={"mem-fraction-static": 0.9, "disable-cuda-graph": True},
    args=("--log-level", "info"),
    env={"HF_TOKEN": Secret("hf"), "CUDA_HOME": "/usr/local/cuda"},
    speculative=Speculative("ddtree", True, 15, "/models/draft"),
    extends="shadow-small",
)


def read(**row: Any) -> dict[str, Any]:
    """A `read` answer with one release besides an older one."""
    older = {"release": "r11", "profile_name": "ddtree-shadow", "profile": {"model": "/m"}}
    return {
        "releases": [older, {"release": "r12", "profile_name": EDITED.name, "profile": profile_json(EDITED), **row}]
    }


def test_an_attempt_that_was_never_saved_comes_back_whole() -> None:
    assert kept.profile(read(), "r12") == EDITED


@pytest.mark.parametrize(
    ("answer", "release"),
    [
        (read(), ""),
        (read(), "r13"),
        (read(profile={}), "r12"),
        (read(profile="odd"), "r13"),
        ({}, "r12"),
        ({"releases": "odd"}, "r12"),
        ({"releases": [None, 3, {"release": "r12"}]}, "r12"),
    ],
)
def test_nothing_kept_is_none(answer: dict[str, Any], release: str) -> None:
    assert kept.profile(answer, release) is None
