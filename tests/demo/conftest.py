"""A bare sandbox host for each test: it is up within 50 ms."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ddtree_console.demo.host import SandboxHost
from ddtree_console.demo.sandbox import Sandbox


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Sandbox]:
    """One host, h1, without services."""
    async with Sandbox(tmp_path / "box", hosts=("h1",), prepared=False) as made:
        yield made


@pytest.fixture
def host(box: Sandbox) -> SandboxHost:
    """Its back door."""
    return box.host("h1")
