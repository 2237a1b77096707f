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

NAMES = ("tiny-dflash", "tiny-shadow-31", "tiny-tree-63")
WIDTH = {"tiny-dflash": 16, "tiny-shadow-31": 32, "tiny-tree-63": 64}
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
    assert asked["speculative-algorithm"] == ("DFLASH" if name == "tiny-dflash" else "DDTREE")
    assert drift.compare(asked, sglang_http.effective(info(name)), side.seen, (), side.arguments, side.values) == []
    wrong = drift.compare({**asked, "speculative-algorithm": "EAGLE"}, sglang_http.effective(info(name)), (), ())
    assert [d.flag for d in wrong] == ["speculative-algorithm"]
    assert info(name)["speculative_num_draft_tokens"] == WIDTH[name]


@pytest.mark.parametrize("name", NAMES)
def test_its_accept_length_is_shown(name: str) -> None:
    """The metrics show the window of the last decode line that was written before they were asked."""
    text = recordings.load(name).text()
    asked = next(i for i, line in enumerate(text) if "GET /metrics" in line)
    reader = registry.get("sglang").reader()
    seen = [fact for line in text[:asked] for fact in reader.feed(line)]
    in_log = [fact.value.accept_len for fact in seen if fact.kind == "decode"]
    shown = registry.get("sglang").figures(recordings.load(name).responses["/metrics"][1])
    assert len(in_log) > 20 and all(length >= 1 for length in in_log)
    assert shown.accept_len == pytest.approx(in_log[-1], abs=0.01)
    assert shown.running == 0 and shown.tok_s is not None


def test_the_tree_tells_what_it_saves() -> None:
    found = ddtree_info.read(info("tiny-tree-63"))
    assert found is not None and (found.mode, found.budget, found.wrong) == ("tree", 63, 0)
    assert found.chain_length is not None and found.tree_length is not None and found.rounds > 1000
    assert found.tree_length - found.chain_length == pytest.approx(found.gain, abs=0.001)
    assert ddtree_info.verdict(found) == ("the tree saves 1.25 tokens a round", "good")
    assert ddtree_info.read(info("tiny-dflash")) is None


def test_the_shadow_tells_what_a_tree_would_save() -> None:
    found = ddtree_info.read(info("tiny-shadow-31"))
    assert found is not None and (found.mode, found.budget, found.wrong, found.rounds) == ("shadow", 31, 0, 909)
    words = "the tree would have saved 0.50 tokens a round; enable with `e`"
    assert ddtree_info.verdict(found) == (words, "good")


@pytest.mark.parametrize(("name", "emitted"), [("tiny-tree-63", "tree_length"), ("tiny-shadow-31", "chain_length")])
def test_what_is_counted_ends_where_an_answer_ends(name: str, emitted: str) -> None:
    """A tree emits what the tree accepts, a shadow what the chain accepts: nothing behind an end is counted."""
    section = info(name)["internal_states"][0]["ddtree"]
    assert section[emitted] == section["accept_length"]


@pytest.mark.parametrize("name", NAMES)
def test_the_answers_own_figures_agree(name: str) -> None:
    """`meta_info` of a generation: tokens are what its passes accepted, each with its bonus."""
    said = recordings.load(name).responses["/generate"][1]["meta_info"]
    assert said["spec_verify_ct"] and said["spec_accept_length"] == said["completion_tokens"] / said["spec_verify_ct"]
    assert said["spec_num_proposed_drafts"] == (WIDTH[name] - 1) * said["spec_verify_ct"]


def test_a_refused_start_is_named_with_its_remedy() -> None:
    engine = Findings(rules_from_json(load_rules()))
    for line in recordings.load("tiny-refused-fa3").text():
        engine.feed(line)
    engine.close()
    (found,) = engine.findings()
    assert "fa3 verifies a tree as a chain" in found.summary and not engine.served
    assert found.remedies[0].text == "Use --attention-backend triton, which applies a tree's mask."


def test_the_plug_in_says_in_the_log_what_it_runs() -> None:
    log = "\n".join(recordings.load("tiny-tree-63").text())
    assert "DDTREE self-test passed: a sibling moves a node by 0" in log
    assert "Initialized DDTree worker. mode=tree, block_size=16, tree_budget=63, ranks=63, graphs=True" in log
    assert "shorter 0, astray 0" in log and "cuda graph: True" in log
