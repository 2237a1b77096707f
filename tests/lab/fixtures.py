"""Fixtures that give tests real hosts. A host boots in a quarter of a second, so each test may break its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.lab.cluster import Lab
from tests.lab.host import Host


class Hosts:
    """The session's hosts, each as new when a test takes it. h2 is wired."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._used: set[str] = set()

    def __getitem__(self, name: str) -> Host:
        """A host as new that this test may change."""
        host = self.look(name)
        self._used.add(name)
        return host

    def look(self, name: str) -> Host:
        """A host as new that this test promises to leave so: the next one gets it as it is."""
        host = self._lab.hosts[name]
        if name in self._used:
            host.renew()
            self._used.discard(name)
        return host


@pytest.fixture(scope="session")
def _all_hosts() -> Iterator[Hosts]:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")  # each worker has a lab of its own
    with Lab(("h1", "h2"), wired=("h2",), number=int(worker.removeprefix("gw"))) as lab:
        yield Hosts(lab)


@pytest.fixture
def hosts(_all_hosts: Hosts) -> Hosts:
    """Two hosts, h1 and h2: `hosts["h1"]` to change one, `hosts.look("h1")` only to look."""
    return _all_hosts
