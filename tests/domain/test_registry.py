"""Engines by name: each reads its own kind of log."""

from __future__ import annotations

from ddtree_console.domain.engines import registry


def test_a_generic_program_has_no_phases_of_sglang() -> None:
    assert [fact.kind for fact in registry.get("sglang").reader().feed("hello")] == ["phase"]
    assert registry.get("generic").reader().feed("hello") == []
