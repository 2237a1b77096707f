"""Rule files: what is wrong in one is told with its line, and what is right travels as plain JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddtree_console.config.patterns import endless
from ddtree_console.config.rules import BUILTIN, check, files, load_rules
from ddtree_console.config.yamltree import ConfigError
from ddtree_console.domain.findings.engine import Findings
from ddtree_console.domain.findings.rules import rules_from_json
from ddtree_console.hostside import rules as hostside

GOOD = """family: ours
rules:
  - id: our-fan
    slug: driver-not-ready
    any: ["fan of gpu"]
    match: 'fan of gpu (?P<gpu>\\d+) stands'
    summary: "The fan of GPU {gpu} stands."
    cases: []
    remedies:
      - text: "Clean it."
        edits: [{flag: tp-size, lower: 1}]
        do: "nvidia-smi -i {gpu}"
"""


def test_the_builtin_rules_are_right_and_travel_as_json() -> None:
    rows = load_rules()
    assert json.loads(json.dumps(rows)) == rows
    compiled = rules_from_json(rows)
    assert len(compiled) == len(rows) and not compiled.problems
    assert len({row["id"] for row in rows}) == len(rows)
    assert {path.stem for path in files(BUILTIN)} == {row["family"] for row in rows}


def test_an_operators_rule_is_used(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(GOOD, "utf-8")
    engine = Findings(rules_from_json(load_rules(tmp_path)))
    engine.feed("RuntimeError: the fan of GPU 3 stands still; fan of gpu 3 stands")
    engine.end()
    found = engine.verdict()
    assert found is not None
    assert (found.rule, found.summary) == ("our-fan", "The fan of GPU 3 stands.")
    assert (found.remedies[0].edits[0].value, found.remedies[0].command) == (1, "nvidia-smi -i 3")


def test_an_operators_rule_replaces_the_builtin_of_its_id(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD.replace("our-fan", "gpu-oom"), "utf-8")
    kept = [rule for rule in rules_from_json(load_rules(tmp_path)).rules if rule.id == "gpu-oom"]
    assert [rule.slug for rule in kept] == ["driver-not-ready"]


@pytest.mark.parametrize(
    ("old", "new", "line", "key"),
    [
        ("slug: driver-not-ready", "slug: driver-tired", 4, "rules[0].slug"),
        ('any: ["fan of gpu"]', "any: []", 5, "rules[0].any"),
        ("match: 'fan of gpu (?P<gpu>\\d+) stands'", "match: '('", 6, "rules[0].match"),
        ("match: 'fan of gpu (?P<gpu>\\d+) stands'", "match: 'fan (\\w+\\s*)+stands'", 6, "rules[0].match"),
        ("    cases: []\n", "", 3, "rules[0].cases"),
        ("id: our-fan", "id: Our Fan", 3, "rules[0].id"),
        ("    cases: []", "    cases: []\n    strenght: 3", 9, "rules[0].strenght"),
        ("    cases: []", "    cases: []\n    strength: 300", 9, "rules[0].strength"),
        ("{flag: tp-size, lower: 1}", "{flag: tp-size, sink: 1}", 11, "rules[0].remedies[0].edits[0]"),
        ('- text: "Clean it."', '- txt: "Clean it."', 10, "rules[0].remedies[0]"),
        ("family: ours", "family: 3", 1, "family"),
        ("rules:\n", "rules: [\n", 3, ""),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, key: str) -> None:
    path = tmp_path / "ours.yaml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new, 1), "utf-8")
    rows, document = check(path)
    assert rows == []
    problem = document.problems[0]
    assert (problem.key, problem.file) == (key, str(path))
    assert problem.line == line
    with pytest.raises(ConfigError):
        load_rules(tmp_path)


def test_a_row_that_cannot_be_used_is_left_out() -> None:
    rules = rules_from_json([{"id": "x"}, 3, None, {"id": "y", "slug": "unknown", "any": ["word"], "match": "("}])
    assert len(rules) == 0 and len(rules.problems) == 4
    assert len(rules_from_json("nonsense")) == 0


def test_the_host_reads_what_travelled(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps(load_rules()), "utf-8")
    own = [{"id": "own", "slug": "unknown", "any": ["something of ours"]}]
    assert len(hostside.load(tmp_path, own)) == len(load_rules()) + 1
    assert len(hostside.load(tmp_path / "absent")) == 0
    (tmp_path / "rules.json").write_text("{", "utf-8")
    assert len(hostside.load(tmp_path)) == 0


def test_patterns_that_never_end_are_found_and_those_of_the_program_end() -> None:
    bad = [r"(a+)+$", r"fan (\w+\s*)+bar", r".*.*.*x", r"(x+x+)+y", r"speed (a|a)+b", r"(?:fan|pump) (?:\d+,?)*;"]
    good = [r"(?i)not found: (?P<x>\S+)", "plain", "(", r"\((?:\w+ )?pid=\d+\)"]
    assert endless([*bad, *good]) == list(range(len(bad)))
    own = [row[key] for row in load_rules() for key in ("match", "unless", "frames") if row.get(key)]
    assert len(own) > 100
    assert [own[i] for i in endless(own)] == []
