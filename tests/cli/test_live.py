"""What a command takes from the user's config folder before it connects."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtree_console.cli import live

RULE = """family: ours
rules:
  - id: ours-ticket
    slug: unknown
    any: ["ticket 12"]
    summary: "Known here: ticket 12."
    cases: []
"""


def test_own_rules_that_cannot_be_used_are_named_and_stop_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert live.own_rules() == ([], [])
    folder = tmp_path / "ddtree-console/rules"
    folder.mkdir(parents=True)
    (folder / "a.yaml").write_text(RULE)
    (folder / "b.yaml").write_text("family: [")
    rows, problems = live.own_rules()
    assert [row["id"] for row in rows] == ["ours-ticket"]
    assert len(problems) == 1
    assert "b.yaml" in problems[0]
