"""What SGLang 0.5.12 wrote and answered on an H200 with the DDTREE plug-in, and with DFLASH, as a console reads it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from ddtree_console.config.rules import load_rules
from ddtree_console.demo import recordings
from ddtree_console.demo.recordings.substitute import flags_of
from ddtree_console.domain import drift
from ddtree_console.domain.engines import ddtree_info, registry, sglang_http
from ddtree_console.domain.findings.engine import Findings
from ddtree_console.domain.findings.rules import rules_from_json
from ddtree_console.hostside.ladder_log import LogSide

NAMES = ("tiny-dflash", "tiny-tree-31")
PHASES = [
    "imports", "arguments", "imports", "distributed", "weights", "kv cache", "graphs",
    "distributed", "draft weights", "draft kv cache", "draft graphs", "warm-up",
]  # fmt: skip


@cache
def facts(name: str) -> list[Any]:
    reader = registry.get("sglang").reader()
    return [fact for line in recordings.load(name).text() for fact in reader.feed(line)]


def info(name: str) -> dict[str, Any]:
    return dict(recordings.load(name).responses["/server_info"][1])


@pytest.mark.parametrize("name", NAMES)
def test_phases_to_ready(name: str) -> None:
    for state in ("run", "ok"):
        assert [fact.name for fact in facts(name) if fact.kind == "phase" and fact.state == state] == PHASES
    assert [fact.kind for fact in facts(name) if fact.kind in ("ready", "fatal", "exception", "warning")] == ["ready"]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_found_wrong(name: str) -> None:
    engine = Findings(rules_from_json(load_rules()))
    for line in recordings.load(name).text():
        engine.feed(line)
        assert engine.verdict() is None, line
    engine.close()
    assert engine.findings() == () and engine.phase == "ready" and engine.served


@pytest.mark.parametrize("name", NAMES)
def test_it_has_what_it_was_asked_for(name: str) -> None:
    run = recordings.load(name)
    side = LogSide(registry.get("sglang").reader(), {})
    for (when, _), text in zip(run.lines, run.text(), strict=True):
        side.feed(when, text)
    asked = flags_of(run.args)
    assert asked["speculative-algorithm"] == ("DDTREE" if "tree" in name else "DFLASH")
    assert drift.compare(asked, sglang_http.effective(info(name)), side.seen, (), side.arguments, side.values) == []
    wrong = drift.compare({**asked, "speculative-algorithm": "EAGLE"}, sglang_http.effective(info(name)), (), ())
    assert [d.flag for d in wrong] == ["speculative-algorithm"]
    assert info(name)["speculative_num_draft_tokens"] == (32 if "tree" in name else 16)


@pytest.mark.parametrize("name", NAMES)
def test_its_accept_length_is_shown(name: str) -> None:
    """From the log and from the metrics: both are of the last decode line's window."""
    in_log = [fact.value.accept_len for fact in facts(name) if fact.kind == "decode"]
    shown = registry.get("sglang").figures(recordings.load(name).responses["/metrics"][1])
    assert len(in_log) > 40 and all(length >= 1 for length in in_log)
    assert shown.accept_len == pytest.approx(in_log[-1], abs=0.01)
    assert shown.running == 0 and shown.tok_s


def test_the_tree_tells_what_it_saves() -> None:
    found = ddtree_info.read(info("tiny-tree-31"))
    assert found is not None and (found.mode, found.budget, found.wrong) == ("tree", 31, 0)
    assert found.chain_length is not None and found.tree_length is not None and found.rounds > 1000
    assert found.tree_length - found.chain_length == pytest.approx(found.gain, abs=0.001)
    assert ddtree_info.verdict(found) == (f"the tree saves {found.gain:.2f} tokens a round", "good")
    assert ddtree_info.read(info("tiny-dflash")) is None


def test_the_plug_in_says_in_the_log_what_it_runs() -> None:
    log = "\n".join(recordings.load("tiny-tree-31").text())
    assert "DDTREE self-test passed: a sibling moves a node by 0" in log
    assert "Initialized DDTree worker. mode=tree, block_size=16, tree_budget=31, ranks=31, graphs=True" in log
    assert "shorter 0, astray 0" in log and "cuda graph: True" in log
