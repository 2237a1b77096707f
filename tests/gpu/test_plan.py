"""The GPU plan's own logic against stand-in servers: waves, a server that fails, the deadline, what is kept."""

from __future__ import annotations

import itertools
import json
import lzma
import os
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import plugin_plan, speed, steps, waves
from tests.gpu.record import main as pack

FEW = ("dflash", "tree-31", "ar", "tree-63")
STAND_IN = (sys.executable, str(Path(__file__).parent / "stand_in.py"))
PORTS = itertools.count(10_000 + 200 * (os.getpid() % 100), 40)
"""below those that the system gives to clients; apart for the workers of one run."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Few and short requests; ports of this test's own."""
    for module, values in (
        (steps, {"FIRST": FEW, "TOKENS": 8, "REQUESTS": 10, "DRAWS": 800, "PAUSE": 0.0}),
        (speed, {"NAMES": FEW, "TOKENS": 160, "LEAST": 2, "MOST": 2}),
        (waves, {"FIRST_PORT": next(PORTS), "STEP": 2}),
    ):
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    few = [[n, n + 1, n + 2] for n in range(6)]
    monkeypatch.setattr(plugin_plan, "prompts", lambda pair: (few, few[:3]))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.delenv("WOUNDED", raising=False)


def go(out: Path, *argv: str, deadline: str = "60") -> tuple[int, dict[str, Any]]:
    """(exit status, result.json) of one run."""
    code = plugin_plan.main([str(out), "--deadline", deadline, *argv], STAND_IN, 0.0)
    return code, json.loads((out / "result.json").read_text())


def test_all_steps_but_the_table_pass_against_stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WOUNDED", "tree-63=memory")  # only its first start: it is tried again
    code, found = go(tmp_path, "--steps", "start,tokens,speed,control,samples,leak,refusals")
    assert {name: row["ok"] for name, row in found.items()} == dict.fromkeys(list(plugin_plan.STEPS)[1:], True), found
    assert code == 0 and set(found["start"]) >= {*steps.FIRST, steps.CONTROL}
    assert found["tokens"]["tree-31"]["same"] == found["tokens"]["tree-31"]["as_dflash"] == 6
    assert found["speed"]["ms"]["tree-31 batch 1"] == {"verify": 0.5} and len(found["speed"]["cells"]["ar 1"]) == 2
    assert found["speed"]["by_prompt"]["dflash"] == [[160, 40]] * 3
    assert found["leak"]["tree-31-leak"]["requests"]["answered"] == 10
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == [
        "plugin.tar.gz", "report.txt", "result.json", "triton.once"]  # fmt: skip
    with tarfile.open(tmp_path / "plugin.tar.gz") as archive:
        names = set(archive.getnames())
        kept = archive.extractfile("recordings/tree-31.json")
        assert kept is not None
        record = json.load(kept)
    assert {"recordings/tree-63-no-memory.log", "recordings/tree-63.log", "recordings/tree-31-leak.json"} <= names
    assert record["responses"]["/server_info"][1]["internal_states"][0]["ddtree"]["steps"] > 0
    assert record["ready"] > 0 and record["rc"] is None and record["args"][1] == "/models/tiny-pair/target"
    assert "| tree-63 | 1 |" in (tmp_path / "report.txt").read_text()
    assert pack([str(tmp_path / "plugin.tar.gz"), "tree-31=tiny"], tmp_path) == 0
    kept_run = json.loads(lzma.decompress((tmp_path / "tiny.json.xz").read_bytes()))
    assert kept_run["responses"]["/generate"][1]["output_ids"] and kept_run["responses"]["gen3_s"] > 0
    assert b"cuda graph: True" in lzma.decompress((tmp_path / "tiny.log.xz").read_bytes())


def test_a_server_that_dies_costs_only_its_own_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WOUNDED", "tree-63=dies")
    code, found = go(tmp_path, "--steps", "start,tokens,control")
    assert code == 1 and "Segmentation fault" in found["start"]["tree-63"]
    assert not found["tokens"]["tree-63"]["ok"] and found["tokens"]["tree-31"]["ok"] and found["control"]["ok"]


def test_the_deadline_ends_all_and_keeps_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WOUNDED", "tree-63=hang")
    monkeypatch.setattr(plugin_plan, "LAST", 0.0)
    began = time.monotonic()
    code, found = go(tmp_path, "--steps", "start,tokens,leak", deadline="3")
    assert code == 1 and time.monotonic() - began < 10
    assert isinstance(found["start"]["dflash"], float) and found["start"]["tree-63"] == "not ready"
    assert not found["start"]["ok"]
    assert "no time left" in found["leak"]["error"] and (tmp_path / "plugin.tar.gz").stat().st_size > 0
    with tarfile.open(tmp_path / "plugin.tar.gz") as archive:
        assert {f"recordings/{name}.log" for name in FEW} <= set(archive.getnames())


def test_smoke_takes_two_servers(tmp_path: Path) -> None:
    code, found = go(tmp_path, "--steps", "smoke")
    assert code == 1 and not found["table"]["ok"]  # there is no SGLang here
    assert (
        found["smoke"]["ok"] and found["quick"]["ok"] and set(found["start"]) == {"ok", "seconds", "dflash", "tree-31"}
    )


def drawing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, draws: list[int]) -> tuple[dict[str, Any], list[Any]]:
    """(what the step found, ids that it asked to go on from), with servers that give these tokens in turn."""
    asked: list[Any] = []

    class Drawn:
        def __init__(self) -> None:
            self.tokens = itertools.cycle(draws)

        def post(self, body: dict[str, Any]) -> list[dict[str, Any]]:
            asked.append(body["input_ids"][0])
            return [{"output_ids": [next(self.tokens)]} for _ in body["input_ids"]]

    fleet = waves.Fleet(tmp_path, tmp_path, tmp_path, waves.Clock(30.0), (), STAND_IN, 0.0)
    one = {name: Drawn() for name in steps.LATER[:2]}
    monkeypatch.setattr(fleet, "get", one.__getitem__)
    plain = [{"ids": [7, 8], "margins": [3.0, 2.0]}, {"ids": [9, 4, 5], "margins": [1.0, 0.25, 4.0]}]
    found: dict[str, Any] = {}
    steps.samples(steps.Run(fleet, [[1], [2, 3]], [], plain), found)
    return found, asked


def test_samples_are_drawn_where_the_target_is_least_sure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, asked = drawing(monkeypatch, tmp_path, [5, 6, 6, 5])
    assert found["ok"] and found["most_frequent"] == 0.5 and (found["prompt"], found["position"]) == (1, 1)
    assert asked and all(ids == [2, 3, 9] for ids in asked)


def test_draws_that_are_all_the_same_prove_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _ = drawing(monkeypatch, tmp_path, [5])
    assert found["between_servers"] == 0 and found["most_frequent"] == 1 and not found["ok"]


def test_samples_alone_take_two_servers(tmp_path: Path) -> None:
    code, found = go(tmp_path, "--steps", "samples")
    assert code == 0 and found["samples"]["draws"] == {"ar": 800, "tree-31": 800}
    with tarfile.open(tmp_path / "plugin.tar.gz") as archive:
        assert sorted(archive.getnames()) == [f"recordings/{n}.{k}" for n in ("ar", "tree-31") for k in ("json", "log")]
