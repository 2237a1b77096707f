"""Watcher messages folded into a host's state."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.domain.events import Event
from ddtree_console.services.reduce import KINDS, Feed, HostState, add_event, initial, reduce
from tests.services.doubles import HELLO, fleet

HOST = fleet().host("h1")


def told(*messages: dict[str, Any]) -> HostState:
    state = initial(HOST)
    for n, message in enumerate(messages):
        state = reduce(state, message, float(n))
    return state


def event(n: int, kind: str, tx: str = "t1", **data: Any) -> Event:
    return Event(tx=tx, n=n, boot="b", t=float(n), wall=0.0, kind=kind, data=data)


def tx(n: int, kind: str, unit: str = "s1.service", tx: str = "t1", **data: Any) -> dict[str, Any]:
    raw = {"v": 1, "tx": tx, "n": n, "boot": "b", "t": float(n), "wall": 0.0, "kind": kind, **data}
    return {"kind": "tx", "unit": unit, "event": raw}


def test_units_ports_locks_releases_and_gpus_find_their_service() -> None:
    state = told(
        HELLO,
        {"kind": "units", "units": {"s1.service": {"active": "active", "main_pid": 7, "drop_ins": ["a", 3]}, "x": {}}},
        {"kind": "ports", "ports": {"s1": {"state": "ours", "address": "0.0.0.0", "pid": 7}}},
        {"kind": "locks", "locks": {"s1.service": {"who": "ops@a", "from": "10.0.0.1", "why": "deploy"}}},
        {"kind": "releases", "releases": {"s1.service": {"committed": "r3", "kept": ["r2", "r3"]}}},
        {"kind": "gpus", "source": "nvml", "gpus": [{"index": 0, "used": 5, "processes": [{"pid": 7}]}]},
    )
    service = state.snapshot.services[0]
    assert service.unit is not None
    assert (service.unit.unit, service.unit.main_pid, service.unit.drop_ins) == ("s1.service", 7, ("a",))
    assert service.listener.address == "0.0.0.0"
    assert service.lock == "ops@a from 10.0.0.1 (deploy)"
    assert service.release.kept == ("r2", "r3")
    assert state.snapshot.gpus.gpus[0].processes[0].pid == 7
    assert (state.snapshot.python, state.snapshot.boot) == ("3.11.2", "boot-1")
    assert service.at == state.snapshot.at == 5.0


def test_a_free_lock_clears_the_holder() -> None:
    state = told(
        {"kind": "locks", "locks": {"s1.service": {"who": "a"}}}, {"kind": "locks", "locks": {"s1.service": None}}
    )
    assert state.snapshot.services[0].lock == ""


def test_a_new_invocation_forgets_what_the_old_process_answered() -> None:
    units = {"kind": "units", "units": {"s1.service": {"active": "active", "invocation": "i1"}}}
    http = {"kind": "http", "service": "s1", "status": 200, "path": "/model_info"}
    assert told(units, http).snapshot.services[0].http.status == 200
    assert told(units, http, units).snapshot.services[0].http.status == 200
    again = {"kind": "units", "units": {"s1.service": {"active": "active", "invocation": "i2"}}}
    assert told(units, http, again).snapshot.services[0].http.status is None


def test_repeated_events_change_nothing_and_a_new_transaction_takes_over() -> None:
    first = [tx(0, "begin", what="deploy", target="r2"), tx(1, "step", step="lock", state="ok", secs=0.1)]
    once, twice = told(*first), told(*first, *first)
    assert once.snapshot.services[0].tx == twice.snapshot.services[0].tx
    view = told(*first, tx(0, "begin", tx="t2", what="rollback"), tx(5, "note", tx="t1", text="late"))
    newest = view.snapshot.services[0].tx
    assert newest is not None
    assert (newest.tx, newest.what, newest.notes) == ("t2", "rollback", ())


def test_drift_is_that_of_the_attempt_that_serves() -> None:
    drift = tx(1, "drift", flag="context-length", asked="131072", effective="32768", must=True)
    state = told(tx(0, "begin"), drift)
    assert [(d.flag, d.must) for d in state.snapshot.services[0].drift] == [("context-length", True)]
    assert told(tx(0, "begin"), drift, tx(2, "back", target="r1")).snapshot.services[0].drift == ()


def test_errors_of_the_watcher_are_kept_by_part() -> None:
    assert told({"kind": "error", "part": "gpus", "text": "no NVML"}).notes == {"gpus": "no NVML"}


@given(st.lists(st.integers(0, 12), max_size=30), st.randoms())
def test_events_in_any_order_and_number_fold_to_the_same(order: list[int], rng: random.Random) -> None:
    kinds = ["begin", *["step", "phase", "rung", "note"] * 3]
    events = {
        n: event(n, kinds[n], step="stop", phase="weights", rung="info", state="ok", text=str(n)) for n in range(13)
    }
    feed = Feed()
    for n in order:
        feed = add_event(feed, events[n])
    straight = Feed()
    for n in sorted(set(order)):
        straight = add_event(straight, events[n])
    assert feed.view == straight.view
    assert feed.last == straight.last


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYED = st.sampled_from(["s1.service", "s1", "units", "active", "gpus", "index", "processes", "pid"])


@given(
    st.sampled_from([*KINDS, "beat", "?"]),
    st.dictionaries(
        st.sampled_from(["units", "ports", "locks", "releases", "gpus", "service", "unit", "event", "info", "status"]),
        JSON | st.dictionaries(KEYED, JSON, max_size=3),
        max_size=6,
    ),
)
def test_nothing_that_a_host_sends_raises(kind: str, data: dict[str, Any]) -> None:
    state = reduce(initial(HOST), {**data, "kind": kind}, 1.0)
    assert state.snapshot.at == 1.0
    assert state.snapshot.services[0].key == "h1/s1"


@given(st.sampled_from(["begin", "step", "rung", "phase", "progress", "verdict", "back", "drift", "outcome"]), JSON)
def test_odd_events_never_raise(kind: str, odd: Any) -> None:
    names = ("step", "state", "secs", "done", "deadline", "evidence", "exit", "flag", "must", "serves")
    raw = {"tx": "t", "n": 0, "t": 0.0, "kind": kind, **dict.fromkeys(names, odd)}
    state = reduce(initial(HOST), {"kind": "tx", "unit": "s1.service", "event": raw}, 1.0)
    assert state.snapshot.services[0].tx is not None
