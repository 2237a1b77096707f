"""Our reader against what each release's real parser printed: tests/builds/reference, made by make_reference.py.

`make flags-reference` (DDTREE_FLAGS=all) takes every release and downloads what is missing, 100 MB. `make test` takes
the smallest, and those whose wheels the cache holds already.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ddtree_console.hostside import inspect_dists, inspect_engine
from ddtree_console.hostside.inspect_source import Sources
from tests.builds import wheels

ALL = os.environ.get("DDTREE_FLAGS") == "all"
LEAST = 0.995
# by hand, from the METADATA of each wheel
TORCH = {
    "0.4.6": "==2.6.0", "0.5.5": "==2.8.0", "0.5.9": "==2.9.1", "0.5.12": "==2.11.0", "0.5.15": "==2.11.0",
    "0.5.20": "==2.13.0", "0.5.23": "==2.14.1",
}  # fmt: skip


def unpacked(release: str, where: Path) -> Path:
    if not ALL and release != wheels.RELEASES[0] and wheels.have(release) is None:
        pytest.skip(f"the wheel of {release} is not in {wheels.folder()}: make flags-reference fetches it")
    try:
        wheel = wheels.fetch(release, seconds=600 if ALL else 20)
    except OSError as error:
        pytest.skip(str(error))
    return wheels.unpack(wheel, where, wheels.READ)


def reference(release: str) -> dict[str, Any]:
    path = Path(__file__).with_name("reference") / f"{release}.json"
    return dict(json.loads(path.read_text()))


@pytest.mark.timeout(700)
@pytest.mark.parametrize("release", wheels.RELEASES)
def test_names_of_a_stock_release(release: str, tmp_path: Path) -> None:
    folder = unpacked(release, tmp_path)
    sources = Sources([str(folder)])
    found = inspect_engine.flags(sources, "sglang", [])
    kinds = {
        name if name.startswith("-") else f"--{name}": row["kind"]
        for row in found["flags"]
        for name in (row["name"], *row["aliases"])
    }
    real = reference(release)
    printed, known = set(real["printed"]), {*real["printed"], *real["hidden"]}
    assert len(printed & kinds.keys()) >= LEAST * len(printed), sorted(printed - kinds.keys())
    assert len(kinds.keys() - known) <= (1 - LEAST) * len(printed), sorted(kinds.keys() - known)
    # what takes no value is told from what does
    switches = set(real["switches"])
    assert [n for n in printed if kinds.get(n) and (kinds[n] == "bool") != (n in switches)] == []
    assert found["problems"] == [] and sources.problems == []
    assert ("DFLASH" in inspect_engine.algorithms(sources, "sglang", found["flags"], [])) == (
        tuple(map(int, release.split("."))) >= (0, 5, 11)
    )
    # no stock release has it
    known_algorithms = inspect_engine.algorithms(sources, "sglang", found["flags"], [])
    assert inspect_engine.ddtree(sources, "sglang", found["flags"], known_algorithms, "") == {}
    dist = inspect_dists.installed([str(folder)])["sglang"]
    assert (dist.version, inspect_dists.pins(dist)["torch"]) == (release, TORCH[release])
