"""The journal follower over a journalctl that a test can kill, empty and make odd."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.hostside import journalctl
from tests.hostside.support import FakeHost, gone

# Follows a file of JSON lines as journalctl follows the journal: tail, cursor (its entry included), death on demand.
SHIM = """import json, os, sys, time
box = {box!r}
args = dict(a.partition("=")[::2] for a in sys.argv[1:])
with open(box + "/calls", "a") as calls:
    calls.write(json.dumps([os.getpid(), sys.argv[1:]]) + "\\n")
lines = open(box + "/journal", "rb").read().splitlines(True)
cursors = [json.loads(line)["__CURSOR"] for line in lines]
at = max(0, len(lines) - int(args.get("--lines", 0)))
if "--cursor" in args:
    if args["--cursor"] == "bad":
        sys.exit("Failed to seek to cursor: Invalid argument")
    at = cursors.index(args["--cursor"]) if args["--cursor"] in cursors else 0
if "--follow" not in args:
    sys.stdout.buffer.write(b"".join(lines[at:]) or b"-- No entries --\\n")
    sys.exit(0)
while not os.path.exists(box + "/die"):
    lines = open(box + "/journal", "rb").read().splitlines(True)
    sys.stdout.buffer.write(b"".join(line for line in lines[at:] if line.endswith(b"\\n")))
    sys.stdout.buffer.flush()
    at = len(lines)
    time.sleep(0.02)
os.unlink(box + "/die")
sys.exit("Journal file gone")
"""
ASK = {"units": ["a.service"], "cursor": None, "tail": 2, "invocation": None}


class Journal:
    """The journal of a fake host."""

    def __init__(self, host: FakeHost) -> None:
        self.file = host.folder / "journal"
        self.file.touch()
        self._host = host
        host.shim("journalctl", SHIM.format(box=str(host.folder)))

    def add(self, cursor: str, message: Any = "x") -> None:
        """One entry, written whole."""
        with self.file.open("ab") as file:
            file.write(json.dumps({"__CURSOR": cursor, "MESSAGE": message}).encode() + b"\n")

    def kill_reader(self) -> None:
        """The running journalctl dies, as it may when files are vacuumed."""
        (self._host.folder / "die").touch()

    def calls(self) -> list[tuple[int, list[str]]]:
        """(pid, arguments) of each journalctl so far."""
        return [tuple(json.loads(line)) for line in (self._host.folder / "calls").read_text().splitlines()]


@pytest.fixture
def journal(host: FakeHost) -> Journal:
    """An empty journal."""
    return Journal(host)


def test_the_tail_then_each_new_entry(host: FakeHost, journal: Journal) -> None:
    for i in range(4):
        journal.add(f"c{i}")
    with host.start("journal") as follower:
        follower.send(ASK)
        assert follower.until(lambda m: True)["__CURSOR"] == "c2"
        assert follower.until(lambda m: True)["__CURSOR"] == "c3"
        journal.add("c4")
        assert follower.until(lambda m: True)["__CURSOR"] == "c4"
    words = journal.calls()[0][1]
    assert "--unit=a.service" in words
    assert "--all" in words


def test_a_resume_has_no_entry_twice_and_no_gap(host: FakeHost, journal: Journal) -> None:
    for i in range(4):
        journal.add(f"c{i}")
    with host.start("journal") as follower:
        follower.send({**ASK, "cursor": "c1"})
        assert follower.until(lambda m: True)["__CURSOR"] == "c2"


def test_an_entry_that_was_vacuumed_away_is_a_gap(host: FakeHost, journal: Journal) -> None:
    journal.add("c7")
    with host.start("journal") as follower:
        follower.send({**ASK, "cursor": "c1"})
        gap = follower.until(lambda m: True)
        assert gap["_ddtree"] == "gap"
        assert "vacuumed" in gap["why"]
        assert follower.until(lambda m: True)["__CURSOR"] == "c7"


def test_a_dead_journalctl_is_restarted_where_it_was(host: FakeHost, journal: Journal) -> None:
    journal.add("c0")
    with host.start("journal") as follower:
        follower.send(ASK)
        assert follower.until(lambda m: True)["__CURSOR"] == "c0"
        journal.kill_reader()
        assert "Journal file gone" in follower.until(lambda m: m.get("_ddtree") == "error")["text"]
        journal.add("c1")
        assert follower.until(lambda m: "__CURSOR" in m)["__CURSOR"] == "c1"
    assert "--cursor=c0" in journal.calls()[-1][1]


def test_a_cursor_that_the_journal_refuses_is_given_up(host: FakeHost, journal: Journal) -> None:
    journal.add("c0")
    with host.start("journal") as follower:
        follower.send({**ASK, "cursor": "bad"})
        assert "seek to cursor" in follower.until(lambda m: True)["text"]
        assert follower.until(lambda m: True)["_ddtree"] == "gap"
        assert follower.until(lambda m: True)["__CURSOR"] == "c0"


def test_a_line_of_six_megabytes_comes_whole(host: FakeHost, journal: Journal) -> None:
    journal.add("c0", "y" * 6_000_000)
    journal.add("c1", [0xFF, 0x1B, 13])
    with host.start("journal") as follower:
        follower.send(ASK)
        assert len(follower.until(lambda m: True)["MESSAGE"]) == 6_000_000
        assert follower.until(lambda m: True)["MESSAGE"] == [0xFF, 0x1B, 13]


def test_the_end_of_stdin_leaves_no_journalctl(host: FakeHost, journal: Journal) -> None:
    journal.add("c0")
    with host.start("journal") as follower:
        follower.send(ASK)
        follower.until(lambda m: True)
        began = time.monotonic()
        follower.close_stdin()
        assert follower.ended() == 0
        assert time.monotonic() - began < 3  # at once, not at a poll of minutes
    assert all(gone(pid) for pid, _ in journal.calls())


def test_a_killed_follower_leaves_no_journalctl_either(host: FakeHost, journal: Journal) -> None:
    journal.add("c0")
    with host.start("journal") as follower:
        follower.send(ASK)
        follower.until(lambda m: True)
        follower.process.kill()
    # it is quiet: without the kernel's help it would live until its next write
    assert all(gone(pid) for pid, _ in journal.calls())


def test_stdin_ends_it_also_between_two_journalctls(host: FakeHost) -> None:
    host.env["PATH"] = str(host.bin)
    with host.start("journal") as follower:
        follower.send(ASK)
        assert follower.until(lambda m: True) == {"_ddtree": "error", "text": "journalctl: No such file or directory"}
        follower.close_stdin()
        assert follower.ended(2) == 0


@pytest.mark.parametrize(
    "odd", [[], {}, {"units": ["--follow"]}, {**ASK, "cursor": "a b"}, {**ASK, "invocation": "--x"}, {"units": ["a/b"]}]
)
def test_a_request_never_becomes_an_option(host: FakeHost, journal: Journal, odd: Any) -> None:
    with host.start("journal") as follower:
        follower.send(odd)
        assert follower.until(lambda m: True)["_ddtree"] == "error"
        assert follower.ended() == 2
    assert not (host.folder / "calls").exists()


def test_an_invocation_is_followed_by_its_id(host: FakeHost, journal: Journal) -> None:
    journal.add("c0")
    with host.start("journal") as follower:
        follower.send({**ASK, "invocation": "ab" * 16})
        follower.until(lambda m: True)
    words = journal.calls()[0][1]
    assert words[-3:] == [f"_SYSTEMD_INVOCATION_ID={'ab' * 16}", "+", f"INVOCATION_ID={'ab' * 16}"]
    assert not [word for word in words if word.startswith("--unit")]


def test_logs(host: FakeHost, journal: Journal) -> None:
    assert host.run("logs", {"unit": "a.service", "lines": 2}) == []
    for i in range(4):
        journal.add(f"c{i}")
    found = host.run("logs", {"unit": "a.service", "lines": 2, "invocation": None})
    assert [line["__CURSOR"] for line in found] == ["c2", "c3"]
    assert host.run("logs", {"unit": "../x"})[0]["code"] == 2


def test_logs_without_permission_say_so(host: FakeHost) -> None:
    host.shim(
        "journalctl", "import sys\nsys.stderr.write('No journal files were opened due to insufficient permissions.')\n"
    )
    (refusal,) = host.run("logs", {"unit": "a.service"})
    assert (refusal["ok"], "permissions" in refusal["cause"]) == (False, True)


@given(st.text(max_size=60), st.text("abcdef=;0123456789", min_size=1, max_size=60))
def test_a_message_never_passes_for_the_cursor(message: str, cursor: str) -> None:
    fake = f'"__CURSOR":"no" {message} "__CURSOR" : "no"'
    line = json.dumps({"MESSAGE": fake, "__CURSOR": cursor, "X": fake}).encode()
    assert journalctl.cursor_of(line) == cursor


def test_ten_thousand_lines_a_second_are_passed_on(host: FakeHost, journal: Journal) -> None:
    count = 30_000
    text = "z" * 80
    journal.file.write_bytes(
        b"".join(b'{"__CURSOR":"c%d","MESSAGE":"%s"}\n' % (i, text.encode()) for i in range(count))
    )
    with host.start("journal") as follower:
        follower.send({**ASK, "tail": count})
        follower.until(lambda m: True)
        began, cpu = time.monotonic(), _cpu(follower.process.pid)
        for _ in range(count - 1):
            follower.line()
        assert time.monotonic() - began < 3
        assert _cpu(follower.process.pid) - cpu < 1.0


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
