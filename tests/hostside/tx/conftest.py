"""A sandbox host with one slot: the host code runs as it does anywhere, systemd is the demo's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ddtree_console.demo.host import SandboxHost
from ddtree_console.demo.sandbox import Sandbox
from tests.hostside.tx.slots import Slot


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[SandboxHost]:
    """A bare host."""
    async with Sandbox(tmp_path / "box", hosts=("h1",), prepared=False) as box:
        yield box.host("h1")


@pytest.fixture
def slot(host: SandboxHost) -> Slot:
    """A slot without any release."""
    return Slot(host)
