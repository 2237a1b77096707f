"""`explain` on the recordings as their files are: seconds since the start before each line."""

from __future__ import annotations

import json
import lzma
from importlib import resources
from pathlib import Path

import pytest

from ddtree_console.cli import main
from ddtree_console.demo import recordings

FOUND = {
    "dflash-healthy": None,
    "dflash-healthy-bars": None,
    "dflash-disable-cuda-graph-only": None,
    "dflash-eager-then-frozen": "zombie-service",
    "graph-capture-crash": "cuda-graph-capture-crash",
    "invalid-choice": "unknown-argument",
    "memory-pool-too-small": "kv-budget-too-small",
    "model-path-missing": "model-path-missing",
    "port-in-use-never-exits": "port-in-use",
    "tiny-dflash": None,
    "tiny-refused-fa3": "unknown-argument",
    "tiny-shadow-31": None,
    "tiny-tree-63": None,
    "triton-crash-decode-capture": "kernel-arch-missing",
    "triton-crash-piecewise": "kernel-arch-missing",
    "unknown-flag": "unknown-argument",
}


@pytest.mark.parametrize(("name", "slug"), FOUND.items())
def test_a_recordings_own_file(name: str, slug: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = resources.files(recordings).joinpath(f"{name}.log.xz").read_bytes()
    file = tmp_path / "a.log"
    file.write_bytes(lzma.decompress(packed))
    main(["explain", str(file), "--json"])
    told = json.loads(capsys.readouterr().out)
    for finding in told["findings"] if name.startswith("tiny-") else ():
        assert "fa3 verifies a tree as a chain" in finding["summary"] and "triton" in finding["remedies"][0]["text"]
    assert [f["slug"] for f in told["findings"][:1]] == ([slug] if slug else [])
    if slug is None:
        assert told["phase"] == "ready"
