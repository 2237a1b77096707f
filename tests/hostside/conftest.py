"""A fake host for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostside.support import FakeHost


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    """Roots under a temporary folder, shims first in PATH."""
    return FakeHost(tmp_path / "host")
