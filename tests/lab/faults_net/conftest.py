"""A host on which a release is committed and serves. Tests that leave it so share it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.faults_net.place import Place
from tests.lab.fixtures import Hosts
from tests.lab.hostcode import HostCode
from tests.lab.slot import Slot


class Kept:
    """The prepared slot, as long as nobody renewed its host."""

    def __init__(self) -> None:
        self._slot: Slot | None = None
        self._pid = 0

    def take(self, hosts: Hosts) -> Slot:
        """The slot as the last test left it, else a new one."""
        if self._slot is None or self._slot.code.host.pid != self._pid:
            host = hosts["h1"]
            self._slot = Slot(HostCode(host)).give_replayer()
            assert self._slot.commit_healthy() == "r1"
            self._pid = host.pid
        return self._slot

    def give_back(self) -> None:
        """Kept only when its committed release serves and nothing else goes on."""
        slot = self._slot
        if slot is None:
            return
        host = slot.code.host
        host.drop(False)
        host.link_up()
        host.freeze_sshd(False)
        quiet = f"timeout 5 sh -c 'while systemctl -q is-active ddtree-tx-{slot.unit}; do sleep 0.05; done'"
        if host.exec(quiet, check=False).returncode or slot.code.trial(slot.unit) or not slot.serves():
            self._slot = None


@pytest.fixture(scope="session")
def _kept() -> Kept:
    return Kept()


@pytest.fixture
def slot(hosts: Hosts, _kept: Kept) -> Iterator[Slot]:
    """A slot whose newest release is committed and serves."""
    yield _kept.take(hosts)
    _kept.give_back()


@pytest.fixture
def place(slot: Slot, tmp_path: Path) -> Place:
    """An operator's folder for that host."""
    return Place(tmp_path / "ann", slot.code.host).make()
