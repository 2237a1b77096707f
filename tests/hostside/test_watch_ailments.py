"""What the watcher tells of a running service's schedulers and of the NVIDIA driver's errors: real processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from ddtree_console.hostside import watch_ranks
from ddtree_console.hostside.watch_config import config
from tests.hostside.support import FakeHost, waiting_child
from tests.hostside.test_watch import GROUP, UNIT, up
from tests.hostside.test_watch import config as watch_config


@pytest.fixture
def looks(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Looks at a unit of this process and two schedulers; each look is due at once."""
    monkeypatch.setattr(watch_ranks, "EVERY", 0.0)
    ranks = [waiting_child(f"sglang::scheduler_TP{n}") for n in (0, 1)]
    host.cgroup(GROUP, os.getpid(), *(one.pid for one in ranks))
    from ddtree_console.domain import systemdshow

    text = "\n".join(f"{key}={value}" for key, value in {**up(os.getpid()), "Id": UNIT}.items())
    states = systemdshow.states([UNIT], text)
    watch = watch_ranks.RankWatch(host.roots)
    yield ranks, lambda: watch.look(config(watch_config()).slots, states).get("a")
    for one in ranks:
        one.kill()
        one.wait()


def test_a_dead_and_a_frozen_scheduler_are_told_and_one_that_goes_on_again(looks: Any) -> None:
    (zero, one), look = looks
    assert look() == {"alive": ["0", "1"], "dead": [], "frozen": []}
    os.kill(zero.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, zero.pid, os.WSTOPPED | os.WNOWAIT)
    assert look() == {"alive": ["1"], "dead": [], "frozen": ["0"]}
    os.kill(zero.pid, signal.SIGCONT)
    one.kill()
    os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
    assert look() == {"alive": ["0"], "dead": ["1"], "frozen": []}


def test_the_watcher_tells_both(host: FakeHost) -> None:
    entries = [
        {"__CURSOR": "a", "__REALTIME_TIMESTAMP": "2000000000", "MESSAGE": "usb 1-1: new device"},
        {
            "__CURSOR": "b",
            "__REALTIME_TIMESTAMP": "3000000000",
            "MESSAGE": "NVRM: Xid (PCI:0000:41:00): 79, pid='4127', name=python3, GPU has fallen off the bus.",
        },
    ]
    told = "\n".join(json.dumps(entry) for entry in entries)
    host.shim("journalctl", f"import time\nprint({told!r}, flush=True)\ntime.sleep(60)\n")
    child = waiting_child("sglang::scheduler")
    host.cgroup(GROUP, os.getpid(), child.pid)
    host.units(a=up(os.getpid()))
    with host.start("watch") as watch:
        watch.send(watch_config())
        wanted: dict[str, Any] = {}
        while set(wanted) != {"ranks", "xid"}:
            message = watch.until(lambda m: m["kind"] in ("ranks", "xid") and (m.get("ranks") or m.get("xid")))
            wanted[message["kind"]] = message[message["kind"]]
    child.kill()
    child.wait()
    assert wanted["ranks"] == {"a": {"alive": ["0"], "dead": [], "frozen": []}}
    (xid,) = wanted["xid"]
    assert (xid["pci"], xid["code"], xid["pid"], xid["wall"]) == ("0000:41:00", 79, 4127, 3000.0)
