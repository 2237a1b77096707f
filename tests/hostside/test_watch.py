"""The watcher as a console sees it: a real process, real sockets and files, systemctl as a shim."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from ddtree_console.hostside import durable, eventlog, locks, mark, releases
from ddtree_console.hostside.hostclock import Clock
from tests.hostside.support import FakeHost, Running, gone

UNIT, GROUP = "a.service", "/system.slice/a.service"


def up(pid: int, **more: Any) -> dict[str, Any]:
    """Properties of a running unit."""
    props = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "MainPID": pid}
    return {**props, "ControlGroup": GROUP, "InvocationID": "aa", **more}


def config(port: int = 1, **more: Any) -> dict[str, Any]:
    """One slot, quick intervals."""
    slot = {"service": "a", "unit": UNIT, "port": port, "gpus": [0], "engine": "sglang", "probe": False}
    return {"v": 1, "services": [slot], "gpu_interval": 0.5, "unit_interval": 0.2, "http_interval": 0.2, **more}


@pytest.fixture
def running(host: FakeHost) -> FakeHost:
    """A host with one running unit, which is this process."""
    host.cgroup(GROUP, os.getpid())
    host.units(a=up(os.getpid()))
    return host


def test_it_says_who_it_is_then_what_is_there(running: FakeHost) -> None:
    with running.start("watch") as watch:
        hello = watch.kind("hello")
        assert (hello["v"], hello["systemd"], hello["uid"]) == (1, "252", os.getuid())
        assert hello["privileged"] == (os.getuid() == 0)
        watch.send(config())
        unit = watch.kind("units")["units"][UNIT]
        assert (unit["active"], unit["main_pid"], unit["invocation"]) == ("active", os.getpid(), "aa")
        assert "unit" not in unit


def test_only_changes_are_told_and_beats_between(running: FakeHost) -> None:
    with running.start("watch") as watch:
        watch.send(config())
        watch.kind("units")
        beat = watch.until(lambda m: m["kind"] == "beat", 5)
        assert beat["wall"] == pytest.approx(time.time(), abs=5)
        # CPU time alone is no news; a new main process is, at once: its cgroup moved
        running.units(a=up(os.getpid(), CPUUsageNSec=99))
        running.cgroup(GROUP, os.getpid(), os.getppid())
        running.units(a=up(os.getppid(), CPUUsageNSec=99))
        began = time.monotonic()
        unit = watch.kind("units")["units"][UNIT]
        assert (unit["main_pid"], unit["cpu_ns"]) == (os.getppid(), 99)
        assert time.monotonic() - began < 2


def test_a_quiet_unit_that_changes_on_disk_only_is_seen_too(running: FakeHost) -> None:
    with running.start("watch") as watch:
        watch.send(config())
        watch.kind("units")
        running.units(a=up(os.getpid(), NeedDaemonReload="yes"))
        assert watch.kind("units", 6)["units"][UNIT]["need_reload"] is True


def test_the_ports_owner_is_followed(running: FakeHost) -> None:
    with socket.socket() as sock, running.start("watch") as watch:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        watch.send(config(port))
        assert watch.kind("ports")["ports"]["a"]["state"] == "nobody"
        sock.listen()
        ours = watch.kind("ports")["ports"]["a"]
        assert (ours["state"], ours["address"], ours["pid"]) == ("ours", "127.0.0.1", os.getpid())
        sock.close()
        assert watch.kind("ports")["ports"]["a"]["state"] == "nobody"


def test_events_of_the_newest_transaction_then_each_new_one(running: FakeHost) -> None:
    # without its lock the attempt would count as cut by a reboot, and be closed
    held = locks.acquire(running.roots, UNIT, [], {}, Clock())
    log = eventlog.EventLog(running.roots, UNIT, "t1", Clock())
    log.emit("begin", what="deploy")
    with running.start("watch") as watch:
        watch.send(config())
        first = watch.kind("tx")
        assert (first["unit"], first["event"]["kind"], first["event"]["n"]) == (UNIT, "begin", 0)
        began = time.monotonic()
        log.emit("step", step="lock", state="ok")
        assert watch.kind("tx")["event"]["step"] == "lock"
        assert time.monotonic() - began < 3  # a quarter of a second, and what a busy machine adds
        path = eventlog.disk_path(running.roots, UNIT, "t1")
        with path.open("ab") as file:
            file.write(b'{"v":1,"tx":"t1","n":2,"t":1,"ki')
            file.flush()
            file.write(b'nd":"note","text":"torn, then whole"}\n')
        assert watch.kind("tx")["event"]["text"] == "torn, then whole"
        mark.write(running.roots, UNIT, mark.Mark(tx="t2"))
        eventlog.EventLog(running.roots, UNIT, "t2", Clock()).emit("begin", what="rollback")
        event = watch.kind("tx")["event"]
        assert (event["tx"], event["n"]) == ("t2", 0)
    held.release()


def test_a_transaction_that_has_ended_is_told_whole_before_the_first_state(running: FakeHost) -> None:
    log = eventlog.EventLog(running.roots, UNIT, "t1", Clock())
    for kind in ("begin", "verdict", "outcome"):
        log.emit(kind, state="committed")
    with running.start("watch") as watch:
        watch.send(config())
        told: list[str] = []
        while not told or told[-1] != "units":
            message = watch.until(lambda m: m["kind"] in ("tx", "units"))
            told.append(message["event"]["kind"] if message["kind"] == "tx" else "units")
    assert told == ["begin", "verdict", "outcome", "units"]


def test_an_attempt_that_nobody_runs_any_more_is_closed(running: FakeHost) -> None:
    eventlog.EventLog(running.roots, UNIT, "t1", Clock()).emit("begin", what="deploy")
    with running.start("watch") as watch:
        watch.send(config())
        cut = watch.until(lambda m: m["kind"] == "tx" and m["event"]["kind"] == "outcome")
        assert cut["event"]["state"] == "cut"


def test_locks_and_releases(running: FakeHost) -> None:
    with running.start("watch") as watch:
        watch.send(config())
        assert watch.kind("locks")["locks"] == {UNIT: None}
        held = locks.acquire(running.roots, UNIT, [0], {"who": "ann", "from": "laptop", "why": "deploy"}, Clock())
        told = watch.kind("locks")["locks"]
        assert (told[UNIT]["who"], told[UNIT]["from"], told["gpu-0"]["why"]) == ("ann", "laptop", "deploy")
        held.release()
        assert watch.kind("locks")["locks"][UNIT] is None
        releases.save(running.roots, UNIT, releases.State(committed="r3"))
        kept = watch.kind("releases")["releases"][UNIT]
        while kept["committed"] != "r3":
            kept = watch.kind("releases")["releases"][UNIT]
        durable.write_atomic(running.roots.committed(UNIT), b"[Service]\n")
        assert str(running.roots.committed(UNIT)) in watch.kind("releases")["releases"][UNIT]["edited"]


def test_it_asks_http_for_a_console_that_cannot(running: FakeHost) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        free = sock.getsockname()[1]
    with running.start("watch") as watch:
        watch.send(config())
        watch.send({"cmd": "http", "id": 7, "port": free, "path": "/x", "method": "GET", "timeout": 2})
        assert watch.kind("http")["error"] == "connection refused"
        watch.send({"cmd": "http", "id": 8, "path": "/x"})
        answer = watch.kind("http")
        assert (answer["id"], answer["status"]) == (8, None)
        assert "port" in answer["error"]


def test_a_hanging_systemctl_stops_nothing_else(running: FakeHost) -> None:
    running.shim("systemctl", "#!/bin/sh\n[ $1 = --version ] || exec sleep 600\n")
    eventlog.EventLog(running.roots, UNIT, "t1", Clock()).emit("begin", what="deploy")
    with running.start("watch") as watch:
        watch.send(config())
        assert watch.kind("tx")["event"]["kind"] == "begin"
        watch.kind("beat", 6)


def test_each_failing_part_is_named_and_its_recovery_told(running: FakeHost) -> None:
    running.shim("systemctl", "#!/bin/sh\necho 'Failed to connect to bus'\nexit 1\n")
    with running.start("watch") as watch:
        watch.send(config())
        error = watch.kind("error")
        assert (error["part"], error["text"]) == ("units", "systemctl show: Failed to connect to bus")
        (running.bin / "systemctl").unlink()
        running.units(a=up(os.getpid()))
        assert watch.until(lambda m: m["kind"] == "error" and m["part"] == "units")["text"] == ""


def test_odd_requests_are_survived(running: FakeHost) -> None:
    with running.start("watch") as watch:
        assert watch.process.stdin is not None
        watch.process.stdin.write(
            b"\xff\xfe{\n[]\n{}\n" + b'{"services":[{"service":"x","unit":"-a/../b","port":1}, 3]}\n'
        )
        watch.send(config())
        assert UNIT in watch.kind("units")["units"]


def test_the_end_of_stdin_ends_it_and_its_children_at_once(running: FakeHost) -> None:
    running.shim(
        "systemctl", f"#!/bin/sh\n[ $1 = --version ] && exit\necho $$ > {running.folder}/pid\nexec sleep 600\n"
    )
    with running.start("watch") as watch:
        watch.send(config())
        watch.kind("gpus")
        pid = int(wait_for(running.folder / "pid"))
        children = [
            int(x) for x in Path(f"/proc/{watch.process.pid}/task/{watch.process.pid}/children").read_text().split()
        ]
        began = time.monotonic()
        watch.close_stdin()
        assert watch.ended() == 0
        assert time.monotonic() - began < 3
    assert pid in children
    assert all(gone(child) for child in children)


def wait_for(path: Path) -> str:
    """The content of a file that a child writes."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text().strip()):
            return text
        time.sleep(0.01)
    raise TimeoutError(path)


def test_a_console_that_vanished_ends_it(running: FakeHost) -> None:
    watch = Running(running.argv("watch"), running.env)
    with watch:
        watch.send(config())
        watch.kind("units")
        assert watch.process.stdout is not None
        os.kill(watch.process.pid, 0)
        watch.close_stdin()
        assert watch.ended(5) == 0
