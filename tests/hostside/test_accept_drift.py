"""`accept-drift` on a host of its own: what is kept, what the watcher then reports, and what is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from ddtree_console.domain import drift
from ddtree_console.domain.snapshot import Drift
from ddtree_console.hostside import accept_drift, locks, releases
from ddtree_console.hostside.hostclock import Clock
from ddtree_console.hostside.roots import Roots

UNIT = "s.service"
ONE, TWO = Drift("page-size", "1", "64"), Drift("max-running-requests", "48", "3", why="capped")


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    keys = {name: str(tmp_path / name) for name in ("etc", "run", "var", "opt", "cgroup")}
    return Roots(**keys, nvml=False, path=str(tmp_path / "roots.json"))


def ask(
    roots: Roots, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **raw: Any
) -> tuple[int, dict[str, Any]]:
    class Stdin:
        buffer = io.BytesIO(json.dumps({"unit": UNIT, "who": "ann", **raw}).encode() + b"\n")

    monkeypatch.setattr("sys.stdin", Stdin)
    status = accept_drift.main(roots, [])
    return status, json.loads(capsys.readouterr().out)


def rows(*found: Drift) -> list[dict[str, str]]:
    return [{"flag": d.flag, "asked": d.asked, "effective": d.effective} for d in found]


def test_what_is_accepted_is_kept_with_the_slot(
    roots: Roots, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = releases.load(roots, UNIT).with_commit("r1", {"token": 2.0}, 5.0)
    releases.save(roots, UNIT, before)
    status, answer = ask(roots, monkeypatch, capsys, drift=rows(ONE, TWO))
    assert (status, answer["ok"]) == (0, True)
    kept = releases.state(roots, UNIT).accepted_drift
    assert drift.accepted((TWO, ONE), kept) and not drift.accepted((ONE,), kept)
    # nothing else of the slot changed, and a commit afterwards keeps it
    assert releases.load(roots, UNIT).known_good == "r1" and releases.load(roots, UNIT).held["r1"]["wall"] == 5.0
    releases.save(roots, UNIT, releases.load(roots, UNIT).with_commit("r2", {}, 6.0))
    assert releases.state(roots, UNIT).accepted_drift == kept
    assert ask(roots, monkeypatch, capsys, drift=[])[1] == {"ok": True, "accepted": ""}


def test_it_is_refused_while_a_transaction_holds_the_slot_and_for_a_bad_request(
    roots: Roots, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = locks.acquire(roots, UNIT, (), {"who": "bob", "from": "", "why": "deploy", "since": 1.0, "tx": "t"}, Clock())
    try:
        status, answer = ask(roots, monkeypatch, capsys, drift=rows(ONE))
    finally:
        held.release()
    assert (status, answer["ok"], answer["holder"]["who"]) == (6, False, "bob")
    for bad in ({"drift": "x"}, {"drift": [{"flag": 1}]}, {"drift": [], "unit": "../x"}):
        assert ask(roots, monkeypatch, capsys, **bad)[0] == 2
    assert releases.state(roots, UNIT).accepted_drift == ""
