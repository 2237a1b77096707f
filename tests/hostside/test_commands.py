"""The short commands, under this Python and under 3.9 where there is one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ddtree_console.domain.plan import Candidate
from ddtree_console.hostside import durable, eventlog, kept, releases
from ddtree_console.hostside.hostclock import Clock
from ddtree_console.hostside.watch_config import is_unit
from tests.hostside.support import FakeHost, waiting_child

OLD = Path("~/.pyenv/versions/3.9.18/bin/python").expanduser()
PYTHONS = [sys.executable] + ([str(OLD)] if OLD.exists() else [])
UNIT, GROUP = "a.service", "/system.slice/a.service"
TEXT = f"[Service]\nExecStart={sys.executable} -c x\n"


@pytest.fixture
def kept_host(host: FakeHost) -> FakeHost:
    """A host with a committed release and a way back."""
    roots = host.roots
    release = kept.keep(roots, UNIT, Candidate(TEXT, "small", {"name": "small"}), {"who": "ann"})
    assert release.release == "r1"
    releases.save(roots, UNIT, releases.State().with_commit("r1", {"listener": 3.0}, 1700000000.0))
    durable.write_atomic(roots.committed(UNIT), TEXT.encode())
    kept.keep_way_back(roots, UNIT, Candidate(TEXT, "linear"), {})
    fragment = {"FragmentPath": str(roots.committed(UNIT)), "UnitFileState": "enabled"}
    host.units(a={"LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead", **fragment})
    host.shim("systemd-analyze", "")
    return host


@pytest.mark.parametrize("python", PYTHONS)
def test_every_command_starts_under_it(kept_host: FakeHost, python: str) -> None:
    (hello,) = kept_host.run("hello", python=python)
    assert hello["uid"] == os.getuid()
    (read,) = kept_host.run("read", {"unit": UNIT}, python)
    assert read["committed"] == "r1"
    assert kept_host.run("history", {"unit": UNIT}, python) == []
    assert kept_host.run("events", {"unit": UNIT}, python) == []
    assert kept_host.run("check", {"services": []}, python)[1]["name"] == "python"
    with subprocess.Popen(kept_host.argv("watch", python), env=kept_host.env, stdin=subprocess.PIPE) as watch:
        watch.communicate(timeout=10)
    assert watch.returncode == 0


def test_read_tells_disk_memory_and_what_is_kept(kept_host: FakeHost) -> None:
    child = waiting_child("--port", "1")
    try:
        drop_in = kept_host.folder / "etc/systemd/system/a.service.d/x.conf"
        durable.write_atomic(drop_in, b"[Service]\nNice=\xff\n")
        fragment = str(kept_host.roots.committed(UNIT))
        props = {"LoadState": "loaded", "ActiveState": "active", "FragmentPath": fragment}
        kept_host.units(a={**props, "MainPID": child.pid, "DropInPaths": str(drop_in)})
        (read,) = kept_host.run("read", {"unit": UNIT})
    finally:
        child.communicate()
    assert (read["text"], read["kept_text"]) == (TEXT, TEXT)
    assert read["cmdline"][-2:] == ["--port", "1"]
    assert read["edited"] == [str(drop_in)]
    assert read["drop_ins"] == [{"path": str(drop_in), "text": "[Service]\nNice=\udcff\n"}]
    assert read["way_back"] == "linear"
    (release,) = read["releases"]
    assert (release["release"], release["profile_name"], release["held"]) == ("r1", "small", True)
    assert release["committed_at"] == 1700000000.0
    # names only: a value may be a secret
    assert set(read["environment"].values()) == {""}
    assert "PATH" in read["environment"]


def test_history_newest_first_without_torn_lines(host: FakeHost) -> None:
    for i in range(3):
        releases.append_history(host.roots, UNIT, {"v": 1, "tx": f"t{i}"})
    path = releases.history(host.roots, UNIT)
    path.write_bytes(path.read_bytes() + b'{"v":1,"tx":"torn')
    assert [line["tx"] for line in host.run("history", {"unit": UNIT, "limit": 2})] == ["t2", "t1"]


def test_events_of_one_transaction(host: FakeHost) -> None:
    log = eventlog.EventLog(host.roots, UNIT, "t1", Clock())
    log.emit("begin", what="deploy")
    log.emit("note", text="bad byte \udcff")
    assert [line["kind"] for line in host.run("events", {"unit": UNIT, "tx": "t1"})] == ["begin", "note"]
    assert [line["n"] for line in host.run("events", {"unit": UNIT})] == [0, 1]
    assert host.run("events", {"unit": UNIT, "tx": "../../x"})[0]["code"] == 2


def checks(host: FakeHost, port: int, gpus: tuple[int, ...] = ()) -> dict[str, dict[str, Any]]:
    """Findings by name."""
    slot = {"service": "a", "unit": UNIT, "port": port, "gpus": list(gpus), "engine": "sglang"}
    return {found["name"]: found for found in host.run("check", {"services": [slot]})}


def test_a_host_that_could_deploy_now(kept_host: FakeHost) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        free = sock.getsockname()[1]
    kept_host.shim(
        "nvidia-smi",
        "import sys\nif 'gpu=' in sys.argv[1]: print('0, A6000, GPU-1, 550.1, 49140, 10, 49130, 0, 30, 20.0, 300.0')\n",
    )
    found = checks(kept_host, free, (0,))
    names = ("privileged", "python", "systemd", "unit", "way back", "port", "gpus")
    assert {name: f["state"] for name, f in found.items()} == {**dict.fromkeys(names, "ok"), "way back": "warn"}
    assert "never ready" in found["way back"]["evidence"]
    held = {"tx": "t1", "outcome": "committed", "profile": "linear", "wall": time.time() - 7200, "seconds": 60.0}
    durable.append_line(releases.history(kept_host.roots, UNIT), json.dumps(held))
    again = checks(kept_host, free, (0,))["way back"]
    assert again["state"] == "ok"
    assert "last ready 119 min ago" in again["evidence"]


def test_each_obstacle_has_evidence_and_remedy(kept_host: FakeHost) -> None:
    durable.write_atomic(kept_host.roots.committed(UNIT), b"[Service]\nExecStart=/opt/gone/python -m x\n")
    kept.keep_way_back(kept_host.roots, UNIT, Candidate("[Service]\nExecStart=/opt/venv/python\n", "linear"), {})
    with socket.create_server(("127.0.0.1", 0)) as sock:
        found = checks(kept_host, sock.getsockname()[1], (0, 3))
    assert "/opt/gone/python does not exist" in found["unit"]["evidence"]
    assert "linear: /opt/venv/python does not exist" in found["way back"]["evidence"]
    assert f"pid {os.getpid()}" in found["port"]["evidence"]
    assert "no NVIDIA driver" in found["gpus"]["evidence"]
    for name in ("unit", "way back", "port", "gpus"):
        assert (found[name]["state"], bool(found[name]["remedy"])) == ("fail", True)


def test_a_gpu_that_another_uses(kept_host: FakeHost) -> None:
    row = "0, A6000, GPU-1, 550.1, 49140, 9000, 40140, 0, 30, 20.0, 300.0"
    kept_host.shim(
        "nvidia-smi",
        f"import sys\nprint('{row}') if 'gpu=' in sys.argv[1] else print('GPU-1, {os.getpid()}, 8000')\n",
    )
    found = checks(kept_host, 1, (0, 3))["gpus"]
    assert found["state"] == "fail"
    assert f"pid {os.getpid()}" in found["evidence"]
    assert "GPU 3: there is none" in found["evidence"]


def test_what_systemd_analyze_says_is_the_evidence(kept_host: FakeHost) -> None:
    kept_host.shim("systemd-analyze", "import sys\nsys.exit(f'{sys.argv[-1]}:2: Unknown key name Foo, ignoring.')")
    found = checks(kept_host, 1)
    assert "Unknown key name Foo" in found["unit"]["evidence"]
    assert found["unit"]["state"] == "fail"


def test_a_slot_that_was_never_deployed(host: FakeHost) -> None:
    host.units()
    found = checks(host, 1)
    assert (found["unit"]["state"], found["way back"]["state"]) == ("warn", "warn")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nonsense"], "unknown command"),
        (["--root", "hello"], "unknown option"),
        (["--roots=/no/such/file", "hello"], "/no/such/file"),
        ([], "unknown command"),
    ],
)
def test_a_wrong_command_line_is_refused(host: FakeHost, argv: list[str], said: str) -> None:
    whole = [sys.executable, "-m", "ddtree_console.hostside", *argv]
    done = subprocess.run(whole, env=host.env, capture_output=True, check=False)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["ok"], done.stderr) == (2, False, b"")
    assert said in answer["cause"]


@pytest.mark.parametrize("command", ["read", "history", "events", "logs"])
def test_an_odd_request_is_refused(host: FakeHost, command: str) -> None:
    odds: list[Any] = [[], {"unit": "../../etc"}]
    for odd in odds:
        (refusal,) = host.run(command, odd)
        assert (refusal["ok"], refusal["code"]) == (False, 2)


@pytest.mark.parametrize("name", ["", "-x", ".hidden", "a b", "a/b", "a\nb", "x" * 300, 3, None])
def test_what_is_no_unit_name(name: Any) -> None:
    assert not is_unit(name)


def test_a_reader_that_goes_away_is_no_error(kept_host: FakeHost) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        kept_host.argv("hello"), env=kept_host.env, stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
