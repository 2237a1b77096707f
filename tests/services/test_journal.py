"""Rings of journal lines: what is kept, counted, resumed; and that a flood costs little."""

from __future__ import annotations

import json
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.services import journal
from ddtree_console.services.journal import JournalFeed, unit_of


def entry(n: int, message: Any = "hello", unit: str = "a.service", spaces: bool = False, **more: Any) -> bytes:
    raw = {
        "__CURSOR": f"s=1;i={n}",
        "__REALTIME_TIMESTAMP": str(1_700_000_000_000_000 + n),
        "_SYSTEMD_UNIT": unit,
        "_SYSTEMD_INVOCATION_ID": "i1",
        "PRIORITY": "6",
        "MESSAGE": message,
        **more,
    }
    return json.dumps(raw, separators=(", ", ": ") if spaces else (",", ":")).encode()


def test_lines_go_to_their_unit_and_systemd_speaks_about_one() -> None:
    feed = JournalFeed(["a.service", "b.service"])
    feed.feed(entry(1, "one"))
    feed.feed(entry(2, "two", unit="b.service", spaces=True))
    feed.feed(entry(3, "Started a.", unit="init.scope", UNIT="a.service"))
    feed.feed(entry(4, "stranger", unit="c.service"))
    assert [line.text for line in feed.read("a.service", -1, 10)] == ["one", "Started a."]
    assert [line.text for line in feed.read("b.service", -1, 10)] == ["two"]
    assert [line.seq for line in feed.read("a.service", 0, 10)] == [1]
    assert feed.read("nobody.service", -1, 10) == ()


def test_a_message_cannot_pose_as_another_unit() -> None:
    assert unit_of(entry(1, '"UNIT":"b.service" "_SYSTEMD_UNIT":"b.service"')) == "a.service"


@given(st.text(), st.text(alphabet="abc.-@", min_size=1), st.booleans())
def test_the_quick_look_says_what_parsing_says(message: str, unit: str, spaces: bool) -> None:
    assert unit_of(entry(1, message, unit=unit, spaces=spaces)) == unit


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_never_raise(raw: bytes) -> None:
    feed = JournalFeed(["a.service"])
    feed.feed(raw)
    feed.feed(b'{"_ddtree"' + raw)
    feed.feed(b'{"_SYSTEMD_UNIT":"a.service",' + raw)
    feed.read("a.service", -1, 10)
    feed.request()


def test_resumes_at_the_last_entry_and_drops_it_when_it_comes_again() -> None:
    feed = JournalFeed(["a.service"])
    assert feed.request()["cursor"] is None
    feed.feed(entry(1))
    feed.feed(entry(2))
    assert feed.request()["cursor"] == "s=1;i=2"
    feed.feed(entry(2))
    feed.feed(entry(3))
    assert [line.seq for line in feed.read("a.service", -1, 10)] == [0, 1, 2]


def test_a_gap_is_a_line_that_says_why() -> None:
    feed = JournalFeed(["a.service"])
    feed.feed(entry(1))
    feed.feed(b'{"_ddtree":"gap","why":"vacuumed"}')
    feed.feed(b'{"_ddtree": "error", "text": "journalctl ended"}')
    assert [line.gap for line in feed.read("a.service", -1, 10)] == ["", "vacuumed", "journal: journalctl ended"]


def test_the_ring_is_bounded_and_counts_what_it_drops() -> None:
    feed = JournalFeed(["a.service"])
    for n in range(journal.KEEP_LINES + 250):
        feed.feed(entry(n))
    ring = feed.rings["a.service"]
    assert (len(ring.lines), ring.dropped) == (journal.KEEP_LINES, 250)
    lines = feed.read("a.service", -1, 100)
    assert [line.seq for line in lines] == list(range(journal.KEEP_LINES + 150, journal.KEEP_LINES + 250))


def test_megabyte_lines_are_cut_and_cannot_fill_the_memory() -> None:
    feed = JournalFeed(["a.service"])
    for n in range(300):
        feed.feed(entry(n, "x" * (1 << 20) + str(n)))
    ring = feed.rings["a.service"]
    assert ring.size <= journal.KEEP_BYTES
    assert ring.dropped + len(ring.lines) == 300
    assert feed.read("a.service", -1, 1)[0].text.endswith("more characters")


def test_ten_thousand_lines_a_second_cost_little() -> None:
    lines = [entry(n, f"Decode batch. #running-req: {n}, " + "x" * 150) for n in range(10_000)]
    feed = JournalFeed(["a.service"])
    began = time.process_time()
    after = -1
    for n, line in enumerate(lines):
        feed.feed(line)
        if n % 2500 == 2499:  # a screen flushes four times a second
            after = feed.read("a.service", after, 2000)[-1].seq
    assert after == 9_999
    assert time.process_time() - began < 0.5
