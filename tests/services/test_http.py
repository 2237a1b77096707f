"""Asking a service through the connection: real sockets, real HTTP, and the restraint of the probe."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ddtree_console.domain.engines.base import Figures, Request
from ddtree_console.services.ask import Answer, ChannelAsker, HostAsker, Target, dialled
from ddtree_console.services.channel import LONGEST_BODY
from ddtree_console.services.http import log_figures, worth_asking
from ddtree_console.services.probe import HEALTH, Probe
from ddtree_console.services.reduce import initial, reduce
from ddtree_console.transport.base import TransportError
from tests.services.doubles import Clock, fleet

Reply = tuple[int, Any]


class Engine:
    """An engine with one endpoint of each kind."""

    name = "generic"

    def info_requests(self) -> list[Request]:
        return [Request("GET", "/old_info"), Request("GET", "/model_info")]

    def server_info_requests(self) -> list[Request]:
        return [Request("GET", "/server_info")]

    def token_requests(self, info: Mapping[str, Any]) -> list[Request]:
        return [Request("POST", "/generate", {"text": "1+1="})]

    def token_made(self, body: Any) -> bool:
        return isinstance(body, dict) and bool(body.get("output_ids"))

    def effective(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return dict(info)

    def figures(self, metrics_text: str) -> Figures:
        words = metrics_text.split()
        return Figures(running=int(words[0]), waiting=int(words[1]), tok_s=float(words[2])) if words else Figures()

    def figures_of_info(self, info: Mapping[str, Any]) -> Figures:
        return Figures(tok_s=info.get("last_gen_throughput"))


class Server:
    """Replies by path; remembers what was asked."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {"/model_info": (200, {"model_path": "/models/m"})}
        self.asked: Counter[str] = Counter()
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        length = next((int(x.split(":")[1]) for x in head.lower().split("\r\n") if x.startswith("content-length")), 0)
        await reader.readexactly(length)
        self.asked[path] += 1
        status, body = self.replies.get(path, (404, ""))
        if status == 0:
            writer.close()
            return
        raw = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(raw)}\r\n\r\n".encode() + raw)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Server, ChannelAsker]]:
    server = Server()
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]

    async def open_tcp(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(address, port)

    asker = ChannelAsker(open_tcp)
    try:
        yield server, asker
    finally:
        await asker.close()
        listening.close()


def probe(clock: Clock, log: Figures | None = None) -> Probe:
    made = Probe(Engine(), clock, lambda: log)  # type: ignore[arg-type]
    made.begin("i1")
    return made


async def test_ignores_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with serving() as (server, asker):
        answer = await asker.ask(Target(server.port), Request("GET", "/model_info"), 5)
        assert (answer.status, answer.json()) == (200, {"model_path": "/models/m"})


async def test_errors_are_answers() -> None:
    async with serving() as (server, asker):
        server.replies.update({"/big": (200, b"x" * (LONGEST_BODY + 1)), "/cut": (0, ""), "/text": (200, "not json")})
        big = await asker.ask(Target(server.port), Request("GET", "/big"), 5)
        cut = await asker.ask(Target(server.port), Request("GET", "/cut"), 5)
        text = await asker.ask(Target(server.port), Request("GET", "/text"), 5)
        assert (big.status, "4 MiB" in big.error) == (None, True)
        assert cut.status is None
        assert cut.error
        assert text.json() is None
        refused = await asker.ask(Target(1), Request("GET", "/"), 5)
        assert refused.status is None
        assert refused.error


async def test_a_server_that_never_answers_ends_at_the_timeout() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(mute, "127.0.0.1", 0)

    async def open_tcp(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(address, port)

    asker = ChannelAsker(open_tcp)
    answer = await asker.ask(Target(listening.sockets[0].getsockname()[1]), Request("GET", "/"), 0.1)
    assert (answer.status, answer.error) == (None, "no answer in 0 s")
    await asker.close()
    listening.close()


async def test_a_forbidden_channel_or_a_key_makes_the_host_ask() -> None:
    async def forbidden(address: str, port: int) -> Any:
        raise TransportError("no-forwarding", "h1", "open a stream", "administratively prohibited", "-")

    clock = Clock()
    one = probe(clock)
    await one.step(ChannelAsker(forbidden), Target(1), False)
    assert one.wants_host
    async with serving() as (server, asker):
        server.replies["/old_info"] = (401, "")
        other = probe(clock)
        await other.step(asker, Target(server.port), False)
        assert other.wants_host


async def test_the_watcher_asks_and_answers_by_number() -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(dict(message))
        asyncio.get_running_loop().call_soon(
            asker.answered, {"kind": "http", "id": message["id"], "status": 200, "body": '{"a":1}', "seconds": 0.1}
        )

    asker = HostAsker(send)
    answer = await asker.ask(Target(30000, "127.0.0.1", 7), Request("POST", "/generate", {"text": "x"}), 5)
    assert answer == Answer(200, '{"a":1}', 0.1)
    assert (sent[0]["auth"], sent[0]["pid"], sent[0]["body"]) == (True, 7, {"text": "x"})
    assert not asker.answered({"kind": "http", "service": "s1"})
    assert not asker.answered({"kind": "http", "id": 99})


async def test_asks_every_two_seconds_while_starting_and_every_fifteen_when_ready() -> None:
    clock = Clock()
    async with serving() as (server, asker):
        server.replies["/model_info"] = (503, "")
        one, target = probe(clock), Target(server.port)
        for _ in range(20):
            await one.step(asker, target, False)
            clock.now += 0.5
        assert server.asked["/model_info"] == 5
        assert server.asked["/old_info"] == 1  # 404 once, never again
        assert server.asked["/generate"] == server.asked["/metrics"] == 0
        server.replies["/model_info"] = (200, {"model_path": "/m"})
        server.replies["/generate"] = (200, {"output_ids": [5]})
        server.asked.clear()
        for _ in range(120):
            await one.step(asker, target, False)
            clock.now += 0.5
        assert server.asked["/model_info"] == 5  # at 0 and 2 s, then every 15
        assert server.asked["/generate"] == 1
        assert server.asked["/metrics"] == 1  # 404 once
        assert one.state.token == "i1"
        assert one.state.served_model == "/m"


async def test_a_transaction_that_saw_a_token_spares_the_server_another() -> None:
    async with serving() as (server, asker):
        await probe(Clock()).step(asker, Target(server.port), True)
        assert server.asked["/generate"] == 0


async def test_figures_come_from_metrics_then_server_info_then_the_log() -> None:
    async with serving() as (server, asker):
        server.replies["/metrics"] = (200, "2 1 842.5")
        first = await probe(Clock()).step(asker, Target(server.port), True)
        assert (first.source, first.running, first.tok_s) == ("metrics", 2, 842.5)
        del server.replies["/metrics"]
        server.replies["/server_info"] = (200, {"last_gen_throughput": 99.0})
        second = await probe(Clock()).step(asker, Target(server.port), True)
        assert (second.source, second.tok_s, second.running) == ("server_info", 99.0, None)
        del server.replies["/server_info"]
        third = await probe(Clock(), Figures(tok_s=5.0)).step(asker, Target(server.port), True)
        assert (third.source, third.tok_s) == ("log", 5.0)
        none = await probe(Clock()).step(asker, Target(server.port), True)
        assert (none.source, none.tok_s) == ("", None)


async def test_health_is_asked_once_and_only_while_requests_wait_and_nothing_moves() -> None:
    clock = Clock()
    async with serving() as (server, asker):
        server.replies["/metrics"] = (200, "1 3 50.0")
        server.replies[HEALTH.path] = (503, "")
        one, target = probe(clock), Target(server.port)
        for _ in range(25):
            await one.step(asker, target, True)
            clock.now += 1
        assert server.asked[HEALTH.path] == 0
        for _ in range(60):
            await one.step(asker, target, True)
            clock.now += 1
        assert server.asked[HEALTH.path] == 1
        assert "hung" in one.state.error
        server.replies["/metrics"] = (200, "1 0 51.0")
        server.replies["/model_info"] = (200, {})
        for _ in range(60):
            await one.step(asker, target, True)
            clock.now += 1
        assert server.asked[HEALTH.path] == 1
        assert one.state.error == ""


async def test_a_new_invocation_begins_anew() -> None:
    async with serving() as (server, asker):
        one = probe(Clock())
        await one.step(asker, Target(server.port), True)
        assert one.state.status == 200
        one.begin("i2")
        assert one.state.status is None


def test_dials_loopback_for_wildcards() -> None:
    assert [dialled(x) for x in ("", "0.0.0.0", "::", "10.0.0.5")] == ["127.0.0.1", "127.0.0.1", "::1", "10.0.0.5"]


@pytest.mark.parametrize(
    ("active", "listener", "asked"),
    [
        ("active", "ours", True),
        ("active", "unknown", True),
        ("active", "foreign", False),
        ("active", "nobody", False),
        ("failed", "ours", False),
        ("inactive", "ours", False),
    ],
)
def test_asks_only_where_our_process_may_answer(active: str, listener: str, asked: bool) -> None:
    state = initial(fleet().host("h1"))
    state = reduce(state, {"kind": "units", "units": {"s1.service": {"active": active}}}, 0)
    state = reduce(state, {"kind": "ports", "ports": {"s1": {"state": listener}}}, 0)
    assert worth_asking(state.snapshot.services[0]) is asked


def test_a_transaction_asks_by_itself_until_it_has_a_token() -> None:
    state = initial(fleet().host("h1"))
    units = {"s1.service": {"active": "active", "invocation": "i1"}}
    state = reduce(state, {"kind": "units", "units": units}, 0)

    def tell(n: int, kind: str, **data: Any) -> None:
        nonlocal state
        event = {"tx": "t", "n": n, "t": 0.0, "kind": kind, **data}
        state = reduce(state, {"kind": "tx", "unit": "s1.service", "event": event}, 0)

    tell(0, "begin")
    tell(1, "step", step="start", state="ok", invocation="i1")
    tell(2, "rung", rung="token", state="run")
    assert not worth_asking(state.snapshot.services[0])
    tell(3, "rung", rung="token", state="ok")
    assert worth_asking(state.snapshot.services[0])


def test_figures_of_the_log_are_the_newest() -> None:
    from ddtree_console.domain.engines.base import LogFact

    class Reader:
        def feed(self, line: str) -> list[LogFact]:
            return [LogFact("decode", value=Figures(tok_s=float(line)))] if line[0].isdigit() else [LogFact("ready")]

    class Logging(Engine):
        def reader(self) -> Reader:
            return Reader()

    assert log_figures(Logging(), lambda: ["1", "x", "2", "y"]) == Figures(tok_s=2.0)  # type: ignore[arg-type]
    assert log_figures(Logging(), lambda: ["x"]) is None  # type: ignore[arg-type]


async def test_an_idle_scheduler_that_hangs_is_found_by_what_it_answered_before() -> None:
    clock = Clock()
    async with serving() as (server, asker):
        server.replies.update({"/server_info": (200, {"version": "1"}), "/metrics": (200, "0 0 0.0")})
        one = probe(clock)
        target = Target(server.port)
        await one.step(asker, target, True)
        assert (server.asked["/server_info"], one.state.error) == (1, "")
        server.replies["/server_info"] = (0, "")
        server.replies["/health"] = (503, "")
        clock.now += 61
        await one.step(asker, target, True)
        assert (server.asked["/server_info"], server.asked["/health"]) == (2, 0), "one silence is none"
        clock.now += 16
        state = await one.step(asker, target, True)
        assert server.asked["/health"] == 1
        assert state.status == 200
        assert state.error.startswith("hung: its scheduler is silent (/server_info")
        clock.now += 16
        await one.step(asker, target, True)
        assert server.asked["/health"] == 1, "/health runs a request: asked once"
        server.replies["/server_info"] = (200, {"version": "1"})
        clock.now += 16
        assert (await one.step(asker, target, True)).error == ""


async def test_a_scheduler_that_is_busy_or_healthy_is_not_called_hung() -> None:
    clock = Clock()
    async with serving() as (server, asker):
        server.replies.update({"/server_info": (200, {"version": "1"}), "/metrics": (200, "1 0 5.0")})
        one, target = probe(clock), Target(server.port)
        await one.step(asker, target, True)
        server.replies["/server_info"] = (0, "")
        for n in range(20):
            clock.now += 16
            server.replies["/metrics"] = (200, f"1 0 {n}.0")
            await one.step(asker, target, True)
        assert (server.asked["/health"], one.state.error) == (0, "")
        server.replies["/health"] = (200, "")
        for _ in range(4):
            clock.now += 20
            await one.step(asker, target, True)
        assert server.asked["/health"] >= 1
        assert one.state.error == ""


async def test_the_trees_counters_are_asked_for_beside_metrics() -> None:
    """Metrics stay the source of the figures; server info is asked again only where it has a `ddtree` section."""
    async with serving() as (server, asker):
        clock = Clock()
        one = probe(clock)
        section = {"mode": "shadow", "rounds": 0}
        server.replies["/metrics"] = (200, "2 1 842.5")
        server.replies["/server_info"] = (200, {"internal_states": [{"ddtree": section}], "last_gen_throughput": 1.0})
        await one.step(asker, Target(server.port), True)
        section["rounds"] = 40
        for _ in range(4):
            clock.now += 5.0
            state = await one.step(asker, Target(server.port), True)
        assert state.info["internal_states"][0]["ddtree"]["rounds"] == 40
        assert (state.source, state.tok_s, server.asked["/server_info"]) == ("metrics", 842.5, 3)
        plain = probe(Clock())
        server.asked.clear()
        server.replies["/server_info"] = (200, {"version": "1"})
        await plain.step(asker, Target(server.port), True)
        assert server.asked["/server_info"] == 1
