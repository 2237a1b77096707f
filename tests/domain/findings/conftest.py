"""The builtin rules, read once, and short ways to feed an engine."""

from __future__ import annotations

from functools import cache

import pytest

from ddtree_console.config.rules import load_rules
from ddtree_console.domain.findings.rules import Rules, rules_from_json


@cache
def builtin() -> Rules:
    return rules_from_json(load_rules())


@pytest.fixture
def rules() -> Rules:
    return builtin()
