"""What the engine makes of every recording, line by line: the cause as its line comes, nothing in a healthy start."""

from __future__ import annotations

import pytest

from ddtree_console.demo import recordings
from ddtree_console.domain.findings.engine import Findings
from ddtree_console.domain.findings.rules import Rules

HEALTHY = ("dflash-healthy", "dflash-healthy-bars", "dflash-disable-cuda-graph-only")


@pytest.mark.parametrize("name", HEALTHY)
def test_a_server_that_served_has_no_finding(name: str, rules: Rules) -> None:
    engine = Findings(rules)
    for line in recordings.load(name).text():
        engine.feed(line)
        found = engine.verdict()
        assert found is None or not found.fatal, line
    engine.close()
    assert engine.findings() == ()
    assert engine.phase == "ready" and engine.served


@pytest.mark.parametrize(
    ("name", "slug", "at", "phase", "edit"),
    [
        ("memory-pool-too-small", "kv-budget-too-small", 52, "kv cache", ("mem-fraction-static", "raise")),
        ("graph-capture-crash", "cuda-graph-capture-crash", 86, "graphs", ("attention-backend", "set")),
        ("triton-crash-decode-capture", "kernel-arch-missing", 3859, "graphs", ("TRITON_PTXAS_PATH", "set")),
        ("triton-crash-piecewise", "kernel-arch-missing", 2810, "piecewise graphs", ("TRITON_PTXAS_PATH", "set")),
        ("unknown-flag", "unknown-argument", 344, "", ("disable-cuda-graphs-please", "remove")),
        ("invalid-choice", "unknown-argument", 344, "", None),
        ("model-path-missing", "model-path-missing", 64, "", ("model", "set")),
        ("port-in-use-never-exits", "port-in-use", 63, "warm-up", ("port", "set")),
    ],
)
def test_the_finding_comes_with_its_line(
    name: str, slug: str, at: int, phase: str, edit: tuple[str, str] | None, rules: Rules
) -> None:
    engine = Findings(rules)
    fatal = None
    for i, line in enumerate(recordings.load(name).text()):
        engine.feed(line)
        found = engine.verdict()
        if found is not None and found.fatal and fatal is None:
            fatal = (i, found)
    engine.end()
    assert fatal is not None
    found = fatal[1]
    assert (fatal[0], found.slug, found.phase) == (at, slug, phase)
    final = engine.verdict()
    assert final is not None and final.slug == slug
    edits = [(e.name, e.op) for r in found.remedies for e in r.edits]
    assert edit is None or edit in edits


def test_the_frozen_server_is_a_zombie(rules: Rules) -> None:
    engine = Findings(rules)
    for line in recordings.load("dflash-eager-then-frozen").text():
        engine.feed(line)
    engine.close()
    found = engine.verdict()
    assert found is not None and found.slug == "zombie-service"


def test_three_thousand_lines_of_ptx_hide_nothing(rules: Rules) -> None:
    engine = Findings(rules)
    for line in recordings.load("triton-crash-piecewise").text():
        engine.feed(line)
    found = engine.verdict()
    assert found is not None
    assert any("sm_86" in piece.text for piece in found.evidence)
    assert not any("disable" in edit.name for remedy in found.remedies for edit in remedy.edits)


@pytest.mark.parametrize(("fraction", "said"), [(0.005, True), (0.88, False)])
def test_the_weights_share_is_said_only_where_it_explains(fraction: float, said: bool, rules: Rules) -> None:
    engine = Findings(rules)
    for line in recordings.load("memory-pool-too-small").text():
        engine.feed(line.replace("mem_fraction_static=0.005", f"mem_fraction_static={fraction}"))
    engine.end()
    found = engine.verdict()
    assert found is not None
    assert ("they alone take 0.0086" in found.summary) is said
    edit = found.remedies[0].edits[0]
    assert (edit.name, edit.op, edit.value) == ("mem-fraction-static", "raise", 0.01 if said else None)
