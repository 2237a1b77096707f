"""A slot on a new host for the fault tests, and what must hold at their ends."""

from __future__ import annotations

from ddtree_console.domain.txview import TxView
from tests.lab.slot import Slot

SLOW = 5.0
"""a start at this speed takes 20 s: long enough to be in the middle of it."""


def serves_committed(slot: Slot, release: str = "r1") -> None:
    """What is committed is what serves now and after a reboot, and no trial is left."""
    assert slot.serves_soon()
    assert slot.code.state(slot.unit)["committed"] == release
    assert not slot.code.trial(slot.unit)
    assert slot.show("FragmentPath", "ActiveState", "UnitFileState") == {
        "FragmentPath": f"/etc/systemd/system/{slot.unit}",
        "ActiveState": "active",
        "UnitFileState": "enabled",
    }
    kept = slot.code.host.path(f"/var/lib/ddtree-console/{slot.unit}/releases/{release}/unit.service").read_text()
    assert slot.code.host.path(f"/etc/systemd/system/{slot.unit}").read_text() == kept


def went_back(slot: Slot, view: TxView, code: str) -> None:
    """The trial failed for that reason, and the known good serves again."""
    assert view.outcome == "went_back", view
    assert view.attempts[0].verdict is not None
    assert view.attempts[0].verdict.code == code, view.attempts[0].verdict
    assert slot.code.history(slot.unit)[-1]["outcome"] == "went_back"
    assert slot.code.history(slot.unit)[-1]["code"] == code
    serves_committed(slot)
