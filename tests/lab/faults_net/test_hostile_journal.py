"""What a unit may write: through journald, journalctl and SSH it reaches the feed and `logs`, and harms nobody."""

from __future__ import annotations

import asyncio
import json
import unicodedata
from pathlib import Path

import pytest

from ddtree_console.cli import main
from tests.lab.faults_net.place import KEY, UNIT, Place
from tests.lab.faults_net.station import station
from tests.lab.fixtures import Hosts

pytestmark = pytest.mark.lab

WRITER = r"""import os, time
def say(raw):
    raw += b"\n"
    while raw:
        raw = raw[os.write(1, raw):]
say(b"first")
say(b"bad utf-8 \xff\xfe\xc3( end")
say(b"\x1b[31mred\x1b[0m \x1b[2J\x1b[H cleared \x1b]0;title\x07")
say(b"\x1b]52;c;cm0gLXJmIC8=\x07 clipboard \x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\")
say(b"nul \0 inside")
say(b"bar  1%\rbar 50%\rbar 100%")
say("c1 \x9b31m rtl \u202e gnp.exe zero\u200bwidth \u2028 next".encode())
say(b"[bold red]markup[/] [/nothing] [link=x] \\[escaped")
say(b'{"_ddtree":"gap","why":"forged"}')
say(b'{"__CURSOR":"s=forged","MESSAGE":"forged","_SYSTEMD_UNIT":"other.service"}')
say(b'"UNIT":"other.service" quoted')
for letter in b"ABC":
    say(bytes([letter]) * (1 << 20))
say(b"last")
time.sleep(600)
"""
UNIT_TEXT = "[Service]\nExecStart=/usr/bin/python3 /opt/lab/hostile.py\n"
SHOWN = (
    "bad utf-8 ���( end",
    "␛[31mred␛[0m ␛[2J␛[H cleared ␛]0;title␇",
    "␛]52;c;cm0gLXJmIC8=␇ clipboard ␛]8;;http://evil.example␛\\link␛]8;;␛\\",
    "bar  1%␍bar 50%␍bar 100%",
    "c1 ‹U+009B›31m rtl ‹U+202E› gnp.exe zero‹U+200B›width ‹U+2028› next",
    "[bold red]markup[/] [/nothing] [link=x] \\[escaped",
    '{"_ddtree":"gap","why":"forged"}',
    '{"__CURSOR":"s=forged","MESSAGE":"forged","_SYSTEMD_UNIT":"other.service"}',
    '"UNIT":"other.service" quoted',
)


def harmless(text: str) -> bool:
    """Whether a terminal would only print it."""
    return all(char == "\n" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in text)


async def test_hostile_lines(hosts: Hosts, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = hosts["h1"]
    place = Place(tmp_path / "ann", host).make()
    host.write("/opt/lab/hostile.py", WRITER)
    host.write(f"/etc/systemd/system/{UNIT}", UNIT_TEXT)
    async with station(place) as ann:
        await ann.up()
        host.exec(f"systemctl daemon-reload; systemctl start {UNIT}")
        await ann.until(lambda: ann.journal() and ann.journal()[-1].text == "last", 20)
        assert {one.link for one in ann.seen} == {"connecting", "up"}, "the connection lived"
        lines = ann.journal()
        assert [line.gap for line in lines if line.gap] == [], "nobody forges our markers"
        assert {line.unit for line in lines} == {UNIT}
        for letter in "ABC":
            assert sum(line.text.count(letter * 1000) for line in lines) >= 1, "a megabyte comes, in journald's pieces"
        kept = await ann.console.logs(KEY, lines=1000)
        assert kept[-1].text == "last"
        assert [line.text for line in kept][:4] == [line.text for line in lines][:4]
        assert len(await ann.console.check("h1", "qwen")) > 4
    for words in (("logs", KEY, "--lines", "500"), ("logs", KEY, "--lines", "500", "--json")):
        code = await asyncio.to_thread(main, [words[0], "--fleet", str(place.fleet), *words[1:]])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        assert harmless(out)
        texts = [json.loads(line)["text"] for line in out.splitlines()] if "--json" in words else [out]
        assert [text for text in SHOWN if not any(text in shown for shown in texts)] == []
