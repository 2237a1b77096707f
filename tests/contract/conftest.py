"""`real_host`: each test that takes it runs twice, once against the demo's sandbox and once against a lab host."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ddtree_console.demo.sandbox import Sandbox
from ddtree_console.domain.spec import Fleet, Host
from ddtree_console.transport.base import Transport
from ddtree_console.transport.opener import opener
from tests.contract.code import Argv, give_code
from tests.contract.real import LabSide, RealHost, SandboxSide
from tests.contract.slot import Slot, new_slot
from tests.lab.fixtures import Hosts


@pytest.fixture(params=["sandbox", pytest.param("lab", marks=pytest.mark.lab)])
async def real_host(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RealHost]:
    """A bare host as new."""
    if request.param == "lab":
        hosts: Hosts = request.getfixturevalue("hosts")
        yield LabSide(hosts["h1"])
        return
    async with Sandbox(tmp_path / "sandbox", hosts=("h1",), prepared=False) as box:
        yield SandboxSide(box.fleet.hosts[0], box.host("h1"))


def transport_of(host: Host) -> Transport:
    """A transport for that host alone."""
    return opener(Fleet(path="", hosts=(host,)))(host)


@pytest.fixture
async def transport(real_host: RealHost) -> AsyncIterator[Transport]:
    """A connection to it, closed afterwards."""
    opened = transport_of(real_host.spec)
    await opened.connect()
    yield opened
    await opened.close()


@pytest.fixture
def argv(real_host: RealHost) -> Argv:
    """The host code is installed: what starts its commands."""
    return give_code(real_host)


@pytest.fixture
async def slot(real_host: RealHost, transport: Transport, argv: Argv) -> Slot:
    """A slot without a release."""
    return await new_slot(real_host, transport, argv)
