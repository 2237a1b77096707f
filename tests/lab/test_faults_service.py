"""A service fails in the middle of a deployment, in each of its ways: the reason has a name and r1 serves again."""

from __future__ import annotations

import pytest

from tests.lab.faults import went_back
from tests.lab.fixtures import Hosts
from tests.lab.hostcode import HostCode
from tests.lab.replay import FOLDER
from tests.lab.slot import Slot

pytestmark = pytest.mark.lab

FLOOD = """import os, runpy, sys, threading, time
def flood():
    began, sent = time.monotonic(), 0
    while True:
        os.write(1, b"".join(b"line %d %s\\n" % (sent + i, b"x" * 80) for i in range(100)))
        sent += 100
        time.sleep(max(0, began + sent / 10000 - time.monotonic()))
threading.Thread(target=flood, daemon=True).start()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def slot(hosts: Hosts) -> Slot:
    """A slot on a new host, whose r1 is committed and serves."""
    slot = Slot(HostCode(hosts["h1"])).give_replayer()
    assert slot.commit_healthy() == "r1"
    return slot


@pytest.mark.parametrize(
    ("recording", "code", "evidence"),
    [
        ("unknown-flag", "exit-arguments", "unrecognized arguments"),
        ("invalid-choice", "exit-arguments", "invalid choice"),
        ("memory-pool-too-small", "fatal-log", "Not enough memory. Please try to increase --mem-fraction-static"),
        ("triton-crash-decode-capture", "fatal-log", "PTXASError"),
        ("triton-crash-piecewise", "fatal-log", "PTXASError"),
        ("port-in-use-never-exits", "cannot-bind", "address already in use"),
    ],
)
def test_recorded_failures(slot: Slot, recording: str, code: str, evidence: str) -> None:
    tx = slot.deploy(recording)
    view = slot.outcome(tx)
    went_back(slot, view, code)
    verdict = view.attempts[0].verdict
    assert verdict is not None
    assert any(evidence in line for line in (verdict.cause, *verdict.evidence)), verdict


def test_crash_loop(slot: Slot) -> None:
    directives = "Restart=always\nRestartSec=50ms\n"
    tx = slot.deploy("unknown-flag", speed=60, directives=directives)
    went_back(slot, slot.outcome(tx), "exit-arguments")


def test_a_process_that_ends_at_once(slot: Slot) -> None:
    candidate = slot.candidate("unknown-flag")
    text = candidate.unit_text.replace(f"{FOLDER}/replayer.py", "/opt/lab/missing.py")
    assert text != candidate.unit_text
    view = slot.outcome(slot.code.submit(slot.plan(type(candidate)(**{**vars(candidate), "unit_text": text}))))
    went_back(slot, view, "exit-arguments")  # Python ends with 2 for a missing script, as argparse does
    verdict = view.attempts[0].verdict
    assert verdict is not None
    assert verdict.exit["status"] == 2
    said = (verdict.cause, *verdict.evidence)
    assert any("can't open file" in line for line in said), "the last words of a process that lived for milliseconds"


def test_a_program_whose_interpreter_is_gone(slot: Slot) -> None:
    """Only systemd tells of it: the service itself never wrote a line."""
    slot.code.host.write("/opt/lab/venv/bin/sglang", "#!/opt/absent/bin/python3\n")
    slot.code.host.exec("chmod 755 /opt/lab/venv/bin/sglang")
    candidate = slot.candidate("unknown-flag")
    command = next(line for line in candidate.unit_text.splitlines() if line.startswith("ExecStart="))
    text = candidate.unit_text.replace(command, "ExecStart=/opt/lab/venv/bin/sglang serve")
    view = slot.outcome(slot.code.submit(slot.plan(type(candidate)(**{**vars(candidate), "unit_text": text}))))
    went_back(slot, view, "unit-failed")
    verdict = view.attempts[0].verdict
    assert verdict is not None
    assert verdict.exit["status"] == 203
    assert verdict.finding["slug"] == "unit-exec-failed"
    assert "/opt/lab/venv/bin/sglang: No such file or directory" in verdict.cause


def test_a_foreign_listener_takes_the_port(slot: Slot) -> None:
    tx = slot.deploy("dflash-healthy-bars", speed=5)
    slot.waiting(tx)
    slot.code.host.exec(f"systemd-run -q --unit=thief python3 -m http.server {slot.port} --bind 127.0.0.1")
    view = slot.code.wait(slot.unit, tx, lambda view: view.attempt and view.attempts[0].verdict)
    slot.code.host.exec("systemctl stop thief")
    verdict = view.attempts[0].verdict
    assert verdict is not None
    assert verdict.code == "foreign-listener"
    assert "thief" in verdict.cause or "python3" in verdict.cause
    went_back(slot, slot.outcome(tx), "foreign-listener")


def test_journal_rotated_and_vacuumed(slot: Slot) -> None:
    tx = slot.deploy("dflash-healthy-bars", speed=15)
    slot.waiting(tx)
    slot.code.host.exec("journalctl --rotate; journalctl --vacuum-time=1us; systemctl restart systemd-journald")
    view = slot.outcome(tx)
    assert view.outcome == "committed", view
    assert view.attempt is not None
    phases = {phase.name: phase.state for phase in view.attempt.phases}
    assert phases.get("graphs") == "ok", "phases after the vacuum are still seen"


@pytest.mark.parametrize("recording", ["dflash-healthy-bars", "memory-pool-too-small"])
def test_ten_thousand_lines_a_second(slot: Slot, recording: str) -> None:
    host = slot.code.host
    host.write("/opt/lab/flood.py", FLOOD)
    host.write("/etc/systemd/journald.conf.d/rate.conf", "[Journal]\nRateLimitIntervalSec=0\n")
    host.exec("systemctl restart systemd-journald")
    candidate = slot.candidate(recording)
    text = candidate.unit_text.replace(f"{FOLDER}/replayer.py", f"/opt/lab/flood.py {FOLDER}/replayer.py")
    tx = slot.code.submit(slot.plan(type(candidate)(**{**vars(candidate), "unit_text": text})))
    view = slot.outcome(tx)
    if recording == "dflash-healthy-bars":
        assert view.outcome == "committed", view
        host.exec(f"systemctl stop {slot.unit}")
    else:
        went_back(slot, view, "fatal-log")
