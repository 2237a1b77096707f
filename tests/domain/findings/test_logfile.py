"""Log files of every form come to the same entries."""

from __future__ import annotations

import io
import itertools
import json

import pytest

from ddtree_console.cli.explain import backwards, explain, lines
from ddtree_console.domain.findings.logfile import Entry, Reader, newest_first
from ddtree_console.domain.findings.rules import Rules

START = 1_767_236_400
MESSAGES = (
    ("python3", 4000, "[2026-01-01 03:00:00] server_args=ServerArgs(model_path='/models/m', mem_fraction_static=0.2)"),
    ("python3", 4000, "[2026-01-01 03:00:01 TP0] Scheduler hit an exception: Traceback (most recent call last):"),
    ("python3", 4000, '  File "/opt/llm/sglang/srt/managers/scheduler.py", line 9, in run_scheduler_process'),
    ("python3", 4000, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
    (
        "python3",
        4000,
        "[2026-01-01 03:00:02] Received sigquit from a child process. It usually means the child failed.",
    ),
    ("systemd", 1, "llm.service: Main process exited, code=killed, status=9/KILL"),
)


def short(stamp: str) -> list[str]:
    return [f"{stamp.format(n)} gpu-host {who}[{pid}]: {text}" for n, (who, pid, text) in enumerate(MESSAGES)]


def as_json() -> list[str]:
    return [
        json.dumps(
            {
                "__CURSOR": f"c{n}", "__REALTIME_TIMESTAMP": str((START + n) * 1_000_000), "SYSLOG_IDENTIFIER": who,
                "_PID": str(pid), "_SYSTEMD_UNIT": "llm.service", "MESSAGE": text,
            }
        )
        for n, (who, pid, text) in enumerate(MESSAGES)
    ]  # fmt: skip


def export() -> list[str]:
    out: list[str] = []
    for n, (who, pid, text) in enumerate(MESSAGES):
        out += [f"__CURSOR=c{n}", f"__REALTIME_TIMESTAMP={(START + n) * 1_000_000}", f"SYSLOG_IDENTIFIER={who}"]
        out += [f"_PID={pid}", f"MESSAGE={text}", ""]
    return out


FORMS = {
    "short": short("Jan 01 03:00:{:02d}"),
    "short with one figure": short("Jan  1 03:00:{:02d}"),
    "short-precise": short("Jan 01 03:00:{:02d}.123456"),
    "short in German": short("Jän 01 03:00:{:02d}"),
    "short-iso": short("2026-01-01T03:00:{:02d}+0100"),
    "short-full": short("Thu 2026-01-01 03:00:{:02d} UTC"),
    "short-unix": short("17672364{:02d}.123456"),
    "short-monotonic": short("[   12{:02d}.123456]"),
    "json": as_json(),
    "export": export(),
    "plain": [text for _, _, text in MESSAGES],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_finding(form: str, rules: Rules) -> None:
    engine = explain(io.BytesIO("\n".join(FORMS[form]).encode()), rules)
    found = engine.findings()[0]
    assert (found.slug, found.fatal) == ("kv-budget-too-small", True)
    assert found.evidence[0].text == MESSAGES[3][2]
    assert engine.lines == len(MESSAGES)


@pytest.mark.parametrize("form", [name for name in FORMS if name != "plain"])
def test_times_processes_and_sources_are_read(form: str) -> None:
    reader = Reader()
    entries = [entry for line in FORMS[form] for entry in reader.feed(line)]
    entries += list(reader.end())
    assert [entry.pid for entry in entries] == [4000] * 5 + [1]
    assert [entry.source for entry in entries] == [""] * 5 + ["systemd"]
    times = [entry.t for entry in entries]
    assert all(t is not None for t in times)
    steps = [round(b - a) for a, b in itertools.pairwise(times) if a is not None and b is not None]
    assert steps == [1] * 5


@pytest.mark.parametrize("form", ["short", "short-iso", "json", "plain"])
def test_newest_first_is_turned_round(form: str, rules: Rules) -> None:
    rows = FORMS[form] if form != "plain" else [row for row in FORMS["plain"] if row.startswith("[") or "Not" in row]
    engine = explain(io.BytesIO("\n".join(reversed(rows)).encode()), rules)
    assert newest_first(list(reversed(rows))) and not newest_first(rows)
    assert engine.findings()[0].slug == "kv-budget-too-small"


def test_lines_of_one_message_belong_to_its_process() -> None:
    reader = Reader()
    rows = ["Jan 01 03:00:00 gpu-host python3[7]: first", " " * 37 + "second", "-- Boot 1234 --", "plain"]
    found = [entry for row in rows for entry in reader.feed(row)]
    assert [(entry.text, entry.pid) for entry in found] == [("first", 7), ("second", 7), ("plain", None)]


def test_a_file_is_read_backwards_as_forwards() -> None:
    text = b"\n".join(b"%d" % n * (n % 50) for n in range(2000)) + b"\n"
    file = io.BytesIO(text)
    forwards = list(lines(file))
    assert list(backwards(io.BytesIO(text))) == forwards[::-1]
    assert list(backwards(io.BytesIO(b""))) == []


def test_only_the_beginning_of_a_long_line_is_kept() -> None:
    found = list(lines(io.BytesIO(b"x" * 3_000_000 + b"\nnext\n")))
    assert [len(found[0]), found[1]] == [65536, "next"]


def test_an_entry_has_no_more_than_it_says() -> None:
    assert list(Reader().feed("no form at all")) == [Entry("no form at all")]
    assert list(Reader().feed("{not json}")) == [Entry("{not json}")]
