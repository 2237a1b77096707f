"""Bytes, processes and channels over one SSH connection."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ddtree_console.transport.base import Transport, TransportError
from tests.contract.conftest import transport_of
from tests.contract.real import RealHost


async def test_a_command_gets_its_input_and_answers_bytes(transport: Transport) -> None:
    odd = bytes(range(256)) + b"\n\xff\xfe"
    done = await transport.run(["cat"], odd)
    assert (done.status, done.stdout, done.stderr) == (0, odd, b"")


async def test_status_and_stderr_come_back(transport: Transport) -> None:
    done = await transport.run(["ls", "/no/such/folder"])
    assert done.status == 2
    assert b"/no/such/folder" in done.stderr


async def test_a_word_that_a_shell_could_misread_is_refused(transport: Transport) -> None:
    for word in ("a;b", "$(id)", "a b", "`id`", "x\ny", "*"):
        with pytest.raises(ValueError, match="fixed word"):
            await transport.run(["echo", word])


async def test_a_long_lived_command_ends_when_its_stdin_closes(transport: Transport) -> None:
    process = await transport.start(["cat"])
    lines = process.lines()
    for number in range(3):
        await process.send(b"line %d" % number)
        assert await asyncio.wait_for(anext(lines), 5) == b"line %d" % number
    await process.close()
    async with asyncio.timeout(5):
        assert [line async for line in lines] == []
        await process.wait()


async def test_a_megabyte_line_comes_whole(transport: Transport) -> None:
    process = await transport.start(["cat"])
    await process.send(b"x" * 1_000_000)
    assert len(await asyncio.wait_for(anext(process.lines()), 10)) == 1_000_000
    await process.close()


async def test_nobody_listens(transport: Transport, real_host: RealHost) -> None:
    with pytest.raises(TransportError) as caught:
        await transport.open_tcp("127.0.0.1", real_host.port)
    assert caught.value.kind == "refused"


async def test_an_unknown_key_is_refused_with_the_command_that_accepts_it(real_host: RealHost, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    empty.write_text("")
    stranger = transport_of(replace(real_host.spec, known_hosts=str(empty)))
    with pytest.raises(TransportError) as caught:
        await stranger.connect()
    assert caught.value.kind == "unknown-key"
    assert "SHA256:" in str(caught.value)
    assert not empty.read_text()


async def test_a_lost_host_is_told_to_all(transport: Transport, real_host: RealHost) -> None:
    process = await transport.start(["cat"])
    await real_host.power_loss()
    async with asyncio.timeout(25):  # a host without power says nothing: keepalive 5 s x 3
        await transport.closed.wait()
        assert (await process.wait())[0] is None
    with pytest.raises(TransportError) as caught:
        await transport.run(["true"])
    assert caught.value.kind == "lost"
