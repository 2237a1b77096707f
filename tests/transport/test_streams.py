"""Commands, lines, loss and forwarding: one contract over SSH and on this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from ddtree_console.domain.spec import Host
from ddtree_console.transport.base import Transport, TransportError
from ddtree_console.transport.local import LocalTransport
from ddtree_console.transport.ssh import SshTransport
from tests.transport.conftest import SshBox


@pytest.fixture(params=["ssh", "local"])
async def transport(
    request: pytest.FixtureRequest, box: SshBox, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Transport]:
    """A connected transport of each kind."""
    made: Transport = SshTransport(box.host()) if request.param == "ssh" else LocalTransport(Host("here", local=True))
    await made.connect()
    yield made
    await made.close()
    assert made.closed.is_set()


def script(box: SshBox, text: str) -> str:
    """A shell script that a fixed word can name."""
    path = box.folder / f"script-{abs(hash(text))}.sh"
    path.write_text(text)
    return str(path)


async def test_a_short_command(transport: Transport, box: SshBox) -> None:
    done = await transport.run(["sh", script(box, "cat; echo no >&2; exit 7")], b"\xff\x00in")
    assert (done.status, done.stdout, done.stderr) == (7, b"\xff\x00in", b"no\n")


async def test_two_at_most_at_once(transport: Transport, box: SshBox) -> None:
    word = script(box, f"echo + >> {box.folder}/log; sleep 0.15; echo - >> {box.folder}/log")
    await asyncio.gather(*(transport.run(["sh", word]) for _ in range(5)))
    most = now = 0
    for mark in (box.folder / "log").read_text().split():
        now += 1 if mark == "+" else -1
        most = max(most, now)
    assert most == 2


async def test_a_command_that_takes_too_long(transport: Transport, box: SshBox) -> None:
    with pytest.raises(TransportError) as caught:
        await transport.run(["sleep", "60"], timeout=0.2)
    assert (caught.value.kind, "0.2 s" in caught.value.cause) == ("timeout", True)
    assert (await transport.run(["true"])).status == 0


@pytest.mark.parametrize("argv", [["sh", "-c", "echo x"], ["echo", "$HOME"], []])
async def test_a_value_never_gets_on_a_command_line(transport: Transport, argv: list[str]) -> None:
    with pytest.raises(ValueError):
        await transport.run(argv)
    with pytest.raises(ValueError):
        await transport.start(argv)


async def test_lines_both_ways_and_an_end_by_stdin(transport: Transport) -> None:
    process = await transport.start(["cat"])
    lines = process.lines()
    await process.send(b'{"n":1}')
    assert await anext(lines) == b'{"n":1}'
    await process.send(b"\xfe\xff not UTF-8 \x1b[0m")
    assert await anext(lines) == b"\xfe\xff not UTF-8 \x1b[0m"
    await process.end()
    assert [line async for line in lines] == []
    assert await process.wait() == (0, b"")
    await process.close()


async def test_six_megabytes_in_one_line(transport: Transport, box: SshBox) -> None:
    (box.folder / "big").write_bytes(b"a" * 6_000_000 + b"\nnext\nlast without newline")
    process = await transport.start(["cat", str(box.folder / "big")])
    assert [len(line) async for line in process.lines()] == [6_000_000, 4, 20]
    await process.close()


async def test_a_line_above_the_cap_is_cut_and_the_next_is_whole(transport: Transport, box: SshBox) -> None:
    (box.folder / "big").write_bytes(b"a" * 9_000_000 + b"\nnext\n")
    process = await transport.start(["cat", str(box.folder / "big")])
    first, second = [line async for line in process.lines()]
    assert first.endswith(b" [cut: %d more bytes]" % (9_000_000 - 8 * 1024 * 1024))
    assert second == b"next"
    await process.close()


async def test_a_chatty_stderr_stops_nothing_and_its_end_is_kept(transport: Transport, box: SshBox) -> None:
    noise = script(box, "head -c 5000000 /dev/zero >&2; echo the end >&2; echo out")
    process = await transport.start(["sh", noise])
    assert [line async for line in process.lines()] == [b"out"]
    status, tail = await process.wait()
    assert (status, len(tail), tail[-8:]) == (0, 65536, b"the end\n")
    await process.close()


async def test_close_ends_what_ignores_its_stdin(transport: Transport, box: SshBox) -> None:
    process = await transport.start(["sh", script(box, "while :; do echo x; sleep 0.05; done")])
    assert await anext(process.lines()) == b"x"
    began = time.monotonic()
    await process.close()
    assert time.monotonic() - began < 3


async def test_sending_to_what_ended(transport: Transport) -> None:
    process = await transport.start(["true"])
    assert (await process.wait())[0] == 0
    with pytest.raises(TransportError) as caught:
        for _ in range(20):
            await process.send(b"x")
            await asyncio.sleep(0.01)
    assert caught.value.kind == "lost"
    await process.close()


async def test_a_stream_to_a_port_of_the_host(transport: Transport) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"got " + await reader.readline())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await transport.open_tcp("0.0.0.0", server.sockets[0].getsockname()[1])
    writer.write(b"\xff\xfe\n")
    await writer.drain()
    assert await reader.read(100) == b"got \xff\xfe\n"
    writer.close()
    server.close()


async def test_a_port_where_nobody_listens(transport: Transport) -> None:
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(TransportError) as caught:
        await transport.open_tcp("127.0.0.1", port)
    assert (caught.value.kind, caught.value.cause) == ("refused", "connection refused")


async def test_a_program_that_is_not_there(transport: Transport) -> None:
    try:
        done = await transport.run(["no-such-program"])
        assert done.status == 127
    except TransportError as error:
        assert "No such file" in error.cause


async def test_a_lost_connection(box: SshBox) -> None:
    transport = SshTransport(box.host())
    await transport.connect()
    process = await transport.start(["cat"])
    short = asyncio.ensure_future(transport.run(["sleep", "60"]))
    await process.send(b"x")
    lines = process.lines()
    assert await anext(lines) == b"x"
    box.connections[0].abort()
    async with asyncio.timeout(5):
        assert [line async for line in lines] == []
        assert (await process.wait())[0] is None
        assert (await short).status is None
        await transport.closed.wait()
    for use in (
        transport.run(["true"]),
        transport.start(["true"]),
        transport.open_tcp("127.0.0.1", 1),
        process.send(b"x"),
    ):
        with pytest.raises(TransportError) as caught:
            await use
        assert caught.value.kind == "lost"
    await process.close()
    await transport.close()


async def test_forwarding_is_forbidden(box: SshBox) -> None:
    box.forwarding = False
    transport = SshTransport(box.host())
    await transport.connect()
    with pytest.raises(TransportError) as caught:
        await transport.open_tcp("127.0.0.1", box.port)
    assert caught.value.kind == "no-forwarding"
    assert (await transport.run(["true"])).status == 0
    await transport.close()


async def test_a_server_that_opens_no_more_sessions(box: SshBox) -> None:
    box.max_sessions = 1
    transport = SshTransport(box.host())
    await transport.connect()
    first = await transport.start(["cat"])
    with pytest.raises(TransportError) as caught:
        await transport.run(["true"])
    assert caught.value.kind == "refused"
    assert "MaxSessions" in caught.value.next_step
    await first.close()
    assert (await transport.run(["true"])).status == 0
    await transport.close()
