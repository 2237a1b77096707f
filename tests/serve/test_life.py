"""A real server process: its phases as the console reads them, systemd's messages, streaming, the end by SIGTERM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ddtree_console.domain.engines.base import LogFact
from ddtree_console.domain.engines.sglang_log import SglangReader
from ddtree_kernels.decode.worker import Worker
from ddtree_kernels.serve import arguments, paths, port
from ddtree_kernels.serve.load import load
from ddtree_kernels.serve.run import Life
from ddtree_kernels.serve.state import State
from tests.serve.process import Process, free_port


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """What systemd listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(20)
        yield listening


def facts(text: str) -> list[LogFact]:
    reader = SglangReader()
    return [fact for line in text.splitlines() for fact in reader.feed(line)]


def test_from_start_to_ready_to_its_end(pair_folder: Path, tmp_path: Path, manager: socket.socket) -> None:
    env = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    key = "sesame-8472"
    flags = ("--mode", "ddtree", "--api-key", key, "--drain-seconds", "0.3", "--decode-log-interval", "5")
    server = Process(pair_folder, tmp_path / "log", *flags, env=env)
    server.start()
    try:
        server.line("server_args=")
        with pytest.raises(httpx.ConnectError):  # nothing listens while it loads
            server.http.get("/health")
        assert manager.recv(100).startswith(b"READY=1")
        server.http.headers["Authorization"] = f"Bearer {key}"
        assert server.http.get("/health").status_code == 200
        started = [fact.name for fact in facts(server.text) if fact.kind == "phase" and fact.state == "run"]
        assert started == [
            "imports", "arguments", "imports", "weights", "draft weights", "kv cache", "draft kv cache", "warm-up",
        ]  # fmt: skip
        kinds = [fact.kind for fact in facts(server.text)]
        assert kinds.count("ready") == 1 and not {"fatal", "exception", "warning"} & set(kinds)
        values = {fact.name: fact.value for fact in facts(server.text) if fact.kind == "value"}
        assert values["context_len"] == 512 and values["max_total_num_tokens"] == values["kv cache tokens"]

        body = {"text": "Hi", "stream": True, "sampling_params": {"max_new_tokens": 490, "ignore_eos": True}}
        with server.http.stream("POST", "/generate", json=body) as answer:
            lines = answer.iter_lines()
            assert '"finish_reason": null' in next(lines)
            asked = time.monotonic()
            server.process.terminate()
            assert manager.recv(100).startswith(b"STOPPING=1")
            rest = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        assert server.process.wait(10) == 0
        assert time.monotonic() - asked < 3.3, "0.3 s of draining, and what it takes to end"
        assert "the server is shutting down" in rest[-1]["error"]["message"]
        assert len(rest) > 1 and rest[-2]["meta_info"]["completion_tokens"] < 490
        decode = [fact.value for fact in facts(server.text) if fact.kind == "decode"]
        assert decode and decode[0].tok_s > 0 and decode[0].accept_len >= 1
        assert key not in server.text
    finally:
        server.end()


async def test_a_client_goes_away_and_a_running_request_is_finished_at_sigterm(pair_folder: Path) -> None:
    """In this process: its own sockets and uvicorn, and SIGTERM as the loop hands it over."""
    args = arguments.parse(["--model", str(pair_folder), "--port", str(free_port()), "--drain-seconds", "20"])
    loaded = load(args, *paths.folders(args))
    life = Life(State(args, loaded, Worker(loaded.engine)), port.reserve(args.host, args.port))
    ended = asyncio.create_task(life.run())
    body = {"prompt": "Hi", "stream": True, "max_tokens": 60, "ignore_eos": True}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{args.port}", trust_env=False) as http:
        await life.ready.wait()
        async with http.stream("POST", "/v1/completions", json={**body, "max_tokens": 490}) as left:
            await anext(left.aiter_lines())  # and is closed here: its client goes away
        one = {"input_ids": [5], "sampling_params": {"max_new_tokens": 1}}
        assert (await http.post("/generate", json=one)).status_code == 200  # its turn came when that one ended
        assert life.state.worker.meter.generated < 480
        assert life.state.totals["aborted"] == 1
        async with http.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            os.kill(os.getpid(), signal.SIGTERM)
            await life.asked.wait()
            assert (await http.get("/health")).status_code == 503
            assert (await http.post("/v1/completions", json=body)).status_code == 503
            rest = [line async for line in lines if line]
        assert '"finish_reason": "length"' in rest[-2] and rest[-1] == "data: [DONE]"
    assert await ended == 0
    assert life.state.totals["aborted"] == 1
