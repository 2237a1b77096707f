"""The journal follower: by cursor, nothing twice, nothing missing, and a gap named where entries are gone."""

from __future__ import annotations

import json
from typing import Any

from ddtree_console.domain import journal
from ddtree_console.transport.base import Transport
from tests.contract.code import Argv
from tests.contract.messages import Message, Messages
from tests.contract.real import RealHost

UNIT = "talker.service"


async def say(host: RealHost, *words: str) -> None:
    """The unit writes each word as a line, and has ended."""
    command = "; ".join(f"echo {word}" for word in words)
    # journald asks for the invocation of a process when it reads its line: one that is gone by then has none
    await say_raw(host, command + "; sleep 0.2")


async def say_raw(host: RealHost, command: str) -> None:
    """The unit runs that shell line, and has ended. It may hold no double quote."""
    script = command.replace("\\", "\\\\").replace("%", "%%")
    host.write(f"/etc/systemd/system/{UNIT}", f'[Service]\nType=oneshot\nExecStart=:/bin/sh -c "{script}"\n')
    await host.exec(f"systemctl daemon-reload && systemctl start {UNIT}")


async def follow(transport: Transport, argv: Argv, cursor: str | None = None, tail: int = 50) -> Messages:
    """A follower of the unit."""
    process = await transport.start(argv("journal"))
    request = {"units": [UNIT], "cursor": cursor, "tail": tail, "invocation": None}
    await process.send(json.dumps(request).encode())
    return Messages(process)


def says(word: str) -> Any:
    """Holds of the unit's own entry with that text."""
    return lambda message: message.get("MESSAGE") == word and message.get("_SYSTEMD_UNIT") == UNIT


def words(messages: list[Message]) -> list[Any]:
    """What the unit itself wrote."""
    return [message["MESSAGE"] for message in messages if message.get("_SYSTEMD_UNIT") == UNIT]


async def test_the_past_and_then_what_comes(transport: Transport, argv: Argv, real_host: RealHost) -> None:
    await say(real_host, "one", "two")
    follower = await follow(transport, argv)
    await follower.until(says("two"))
    await say(real_host, "three")
    last = await follower.until(says("three"))
    assert words(follower.all) == ["one", "two", "three"]
    assert last["_SYSTEMD_INVOCATION_ID"]
    assert last["__CURSOR"]
    await follower.process.close()
    assert (await follower.process.wait())[0] in (0, None)


async def test_a_resume_at_the_cursor_has_all_and_nothing_twice(
    transport: Transport, argv: Argv, real_host: RealHost
) -> None:
    await say(real_host, "one", "two")
    first = await follow(transport, argv)
    cursor = (await first.until(says("two")))["__CURSOR"]
    await first.process.close()
    await say(real_host, "three", "four")
    second = await follow(transport, argv, cursor)
    await second.until(says("four"))
    assert words(second.all) == ["three", "four"]
    assert not [message for message in second.all if "_ddtree" in message]
    await second.process.close()


async def test_a_vacuumed_cursor_is_a_gap(transport: Transport, argv: Argv, real_host: RealHost) -> None:
    await say(real_host, "one")
    first = await follow(transport, argv)
    cursor = (await first.until(says("one")))["__CURSOR"]
    await first.process.close()
    await real_host.exec("journalctl --rotate && journalctl --vacuum-time=1us")
    await say(real_host, "two")
    second = await follow(transport, argv, cursor)
    await second.until(says("two"))
    assert [message["_ddtree"] for message in second.all if "_ddtree" in message] == ["gap"]
    assert words(second.all) == ["two"]
    await second.process.close()


async def test_a_cursor_that_is_none_goes_on_with_a_gap(transport: Transport, argv: Argv, real_host: RealHost) -> None:
    await say(real_host, "one")
    follower = await follow(transport, argv, "s=0;i=zz")
    await follower.until(lambda message: message.get("_ddtree") == "gap" or message.get("_ddtree") == "error")
    await say(real_host, "two")
    await follower.until(says("two"))
    await follower.process.close()


async def test_odd_bytes_reach_the_parser_whole(transport: Transport, argv: Argv, real_host: RealHost) -> None:
    await say_raw(
        real_host, r"printf 'bad \377\376 utf8\n\033[31mred\033]52;c;eA==\007\nnul a\000b\n[b]x[/b]\n'; echo end"
    )
    follower = await follow(transport, argv)
    await follower.until(says("end"))
    entries = [journal.parse_entry(json.dumps(message).encode()) for message in follower.all]
    texts = [entry.text for entry in entries if entry is not None]
    assert any("bad" in text and "utf8" in text for text in texts)
    assert any("\x1b[31mred" in text for text in texts), "the parser keeps it raw; views make it visible"
    assert "[b]x[/b]" in texts
    await follower.process.close()


async def test_a_piece_of_the_journal_by_invocation(transport: Transport, argv: Argv, real_host: RealHost) -> None:
    await say(real_host, "old")
    await say(real_host, "new")
    await real_host.exec("journalctl --sync")
    asked = json.dumps({"unit": UNIT, "lines": 100, "invocation": None}).encode()
    everything = [json.loads(line) for line in (await transport.run(argv("logs"), asked)).stdout.splitlines()]
    assert words(everything) == ["old", "new"]
    invocation = next(m["_SYSTEMD_INVOCATION_ID"] for m in everything if says("new")(m))
    asked = json.dumps({"unit": UNIT, "lines": 100, "invocation": invocation}).encode()
    only = [json.loads(line) for line in (await transport.run(argv("logs"), asked)).stdout.splitlines()]
    assert words(only) == ["new"]
