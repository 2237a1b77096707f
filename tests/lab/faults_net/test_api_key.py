"""A server with an API key: it is proved ready with the key that the host reads, and the key gets nowhere else."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest

from ddtree_console.cli import main
from tests.lab.faults_net.place import KEY, Place
from tests.lab.faults_net.station import station
from tests.lab.faults_net.truth import never_falsely_ready, next_release, whole
from tests.lab.slot import Slot

pytestmark = pytest.mark.lab
CANARY = "canary-5f0b7c61d2"
FOLDER = "/var/lib/ddtree-console/sglang-qwen.service/releases"


def command_lines(slot: Slot) -> list[str]:
    """Command lines on the host with the key in them."""
    found = []
    for path in slot.code.host.path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if CANARY in words:
            found.append(words)
    return found


def files_with_it(slot: Slot) -> list[str]:
    """Files of ours on the host, and unit files, with the key in them, each with its mode."""
    places = "/var/lib/ddtree-console /run /etc/systemd /etc/ddtree-console"
    found = slot.code.host.exec(f"grep -rlsF {CANARY} {places} | grep -v /run/log/", check=False).stdout.split()
    return sorted(f"{slot.code.host.path(name).stat().st_mode & 0o777:o} {name}" for name in found)


async def test_ready_and_nothing_told(slot: Slot, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.profile("keyed", "dflash-healthy-bars", 80, flags=f", api-key: {CANARY}")
    release = next_release(slot)
    ours: list[str] = []
    async with station(place) as ann:
        await ann.up()
        preview = await ann.console.preview(KEY, "keyed")
        assert CANARY not in repr(preview)
        assert any("api-key" in warning for warning in preview.warnings), "that it shows in /proc and in systemctl show"
        tx, following = await ann.deploy("keyed")
        snapshots = [ann.console.snapshot()]
        while not following.done():
            ours += [line for line in command_lines(slot) if "replayer.py" not in line]
            await ann.glance()
            snapshots.append(ann.console.snapshot())
        events = await following
        assert events[-1].data["state"] == "committed", events[-1]
        await ann.ready(release)
        whole(slot, tx, events)
        never_falsely_ready(ann)
        await ann.until(lambda: ann.service().http.via == "host" and ann.service().http.status == 200, 10)
        snapshots.append(ann.console.snapshot())
        assert ours == [], "only the server's own command line has it"
        assert len(command_lines(slot)) == 1
        told = {
            "snapshots": repr([dataclasses.asdict(one) for one in snapshots]),
            "events": json.dumps([event.line() for event in events]),
            "history": repr(await ann.console.history(KEY)),
            "preview": repr(await ann.console.preview(KEY, "quick")),
        }
        assert [name for name, text in told.items() if CANARY in text] == []
    assert files_with_it(slot) == [
        f"600 /run/ddtree-console/{slot.unit}/plan.json",
        f"600 {FOLDER}/{release}/profile.json",
        f"644 /etc/systemd/system/{slot.unit}",
        f"644 {FOLDER}/{release}/unit.service",
    ]
    for words in (
        ("logs", KEY, "--lines", "3000"),
        ("logs", KEY, "--lines", "3000", "--json"),
        ("history", KEY, "--json"),
        ("status", "--json"),
        ("deploy", KEY, "--profile", "quick", "--dry-run", "--json"),
        ("deploy", KEY, "--profile", "quick"),
    ):
        argv = [words[0], "--fleet", str(place.fleet), *words[1:]]
        code = await asyncio.to_thread(main, argv)
        out, err = capsys.readouterr()
        assert CANARY not in out + err, words
        assert code == 0, (words, err)
        if words[0] == "logs":
            assert "server_args=" in out, "where SGLang itself tells its arguments"
            assert "***" in out
