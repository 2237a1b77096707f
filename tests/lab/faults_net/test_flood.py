"""Ten thousand lines a second during a deployment: the verdict is right, and every line is there or counted."""

from __future__ import annotations

import re

import pytest

from tests.lab.faults_net.place import KEY, Place
from tests.lab.faults_net.station import station
from tests.lab.faults_net.truth import never_falsely_ready, whole
from tests.lab.replay import FOLDER
from tests.lab.slot import Slot

pytestmark = pytest.mark.lab

TOTAL = 20_000
FLOOD = f"""import os, runpy, threading, time
def flood():
    began, sent = time.monotonic(), 0
    while sent < {TOTAL}:
        os.write(1, b"".join(b"line %d %s\\n" % (sent + i, b"x" * 80) for i in range(100)))
        sent += 100
        time.sleep(max(0, began + sent / 10000 - time.monotonic()))
threading.Thread(target=flood, daemon=True).start()
runpy.run_path("{FOLDER}/replayer.py", run_name="__main__")
"""
JOURNALD = "[Journal]\nRateLimitIntervalSec=0\n"


@pytest.mark.parametrize(
    ("recording", "outcome"), [("dflash-healthy-bars", "committed"), ("memory-pool-too-small", "went_back")]
)
async def test_ten_thousand_lines_a_second(slot: Slot, place: Place, recording: str, outcome: str) -> None:
    host = slot.code.host
    host.write("/opt/lab/replay/flood.py", FLOOD)
    host.write("/etc/systemd/journald.conf.d/rate.conf", JOURNALD)
    host.exec("systemctl restart systemd-journald")
    place.profile("flood", recording, 40, program=f"{FOLDER}/flood.py")
    async with station(place) as ann:
        await ann.up()
        tx, following = await ann.deploy("flood")
        mark = len(ann.seen)
        events = await following
        assert events[-1].data["state"] == outcome, events[-1]
        whole(slot, tx, events)
        if outcome == "went_back":
            verdict = next(event.data for event in events if event.kind == "verdict")
            assert verdict["code"] == "fatal-log"
            assert "Not enough memory" in verdict["cause"]
        await ann.until(lambda: ann.state().text == "● ready")
        assert {one.link for one in ann.seen[mark:]} == {"up"}
        if outcome == "committed":
            never_falsely_ready(ann, mark)
            await ann.until(lambda: any(f"line {TOTAL - 1} " in line.text for line in ann.console.journal(KEY)), 10)
        lines, dropped = ann.journal(), ann.console.dropped(KEY)
        assert dropped > 1_000
        assert [line.gap for line in lines if line.gap] == []
        assert [line.seq for line in lines] == list(range(dropped, dropped + len(lines)))
        numbers = [int(found[1]) for line in lines if (found := re.match(r"line (\d+) x", line.text))]
        assert numbers == list(range(numbers[0], numbers[-1] + 1)), "what is there has no hole"
