"""The endpoints in this process: SGLang's and OpenAI's shapes, what is refused and how, health, figures, the key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from ddtree_console.domain.engines import sglang_http
from ddtree_kernels.decode.meter import Meter
from ddtree_kernels.decode.worker import Worker
from ddtree_kernels.serve import arguments, paths, requests
from ddtree_kernels.serve.app import App
from ddtree_kernels.serve.load import Loaded, load
from ddtree_kernels.serve.state import State

KEY = "correct horse"


@pytest.fixture(scope="module")
def loaded(pair_folder: Path) -> Loaded:
    args = arguments.parse(["--model", str(pair_folder), "--mode", "shadow-linear", "--budget", "8"])
    return load(args, *paths.folders(args))


@pytest_asyncio.fixture
async def rounds() -> asyncio.Event:
    """Set once a round was decoded."""
    return asyncio.Event()


@pytest_asyncio.fixture
async def state(loaded: Loaded, pair_folder: Path, rounds: asyncio.Event) -> AsyncIterator[State]:
    loop = asyncio.get_running_loop()
    args = arguments.parse(["--model", str(pair_folder), "--served-model-name", "small", "--budget", "8"])

    def decoded(line: str) -> None:
        loop.call_soon_threadsafe(rounds.set)

    worker = Worker(loaded.engine, meter=Meter(decoded, drafted=8, interval=1))
    worker.start()
    yield State(args, loaded, worker, warmed=True)
    worker.close(0)


@pytest_asyncio.fixture
async def http(state: State) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(App(state).starlette())
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        yield client


def events(text: str) -> list[Any]:
    """The JSON of each event; the stream must end with [DONE]."""
    parts = text.split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


GREEDY = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}


async def test_generate_has_sglang_s_fields(http: httpx.AsyncClient) -> None:
    answer = (await http.post("/generate", json={"text": "Hi", "sampling_params": GREEDY, "rid": "r"})).json()
    meta = answer["meta_info"]
    assert len(answer["output_ids"]) == 12 == meta["completion_tokens"]
    assert (meta["id"], meta["prompt_tokens"], meta["finish_reason"]) == ("r", 2, {"type": "length", "length": 12})
    assert meta["spec_verify_ct"] >= 1 and 1 <= meta["spec_accept_length"] <= 4
    assert meta["e2e_latency"] > 0 and sglang_http.token_made(answer)
    ids = (await http.post("/generate", json={"input_ids": [76, 109], "sampling_params": GREEDY})).json()
    assert len(ids["output_ids"]) == 12


async def test_every_probe_of_the_console_is_answered(http: httpx.AsyncClient) -> None:
    for request in (*sglang_http.info_requests()[:1], *sglang_http.server_info_requests()[:1]):
        assert (await http.get(request.path)).status_code == 200
    for request in sglang_http.token_requests((await http.get("/server_info")).json()):
        answer = await http.request(request.method, request.path, json=request.body)
        assert answer.status_code == 200 and sglang_http.token_made(answer.content)


async def test_streams_end_as_the_whole_answer(http: httpx.AsyncClient) -> None:
    body = {"text": "Hi", "sampling_params": GREEDY}
    whole = (await http.post("/generate", json=body)).json()
    parts = events((await http.post("/generate", json={**body, "stream": True})).text)
    assert (parts[-1]["text"], parts[-1]["output_ids"]) == (whole["text"], whole["output_ids"])
    assert parts[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 12}
    assert [part["meta_info"]["finish_reason"] for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert len(parts) > 3

    asked = {"prompt": "Hi", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    flat = (await http.post("/v1/completions", json=asked)).json()
    stream = {**asked, "stream": True, "stream_options": {"include_usage": True}}
    *deltas, last, usage = events((await http.post("/v1/completions", json=stream)).text)
    assert "".join(p["choices"][0]["text"] for p in [*deltas, last]) == flat["choices"][0]["text"] == whole["text"]
    assert last["choices"][0]["finish_reason"] == flat["choices"][0]["finish_reason"] == "length"
    assert usage["usage"] == flat["usage"] == {"prompt_tokens": 2, "completion_tokens": 12, "total_tokens": 14}

    talk = {**asked, "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
    answer = (await http.post("/v1/chat/completions", json=talk)).json()
    said = events((await http.post("/v1/chat/completions", json={**talk, "stream": True})).text)
    assert said[0]["choices"][0]["delta"]["role"] == "assistant" and said[0]["object"] == "chat.completion.chunk"
    text = "".join(part["choices"][0]["delta"]["content"] for part in said)
    assert text == answer["choices"][0]["message"]["content"]
    assert answer["model"] == "small" and answer["usage"]["prompt_tokens"] > 2


async def test_stop_texts_and_tokens(http: httpx.AsyncClient) -> None:
    plain = (await http.post("/generate", json={"text": "Hi", "sampling_params": GREEDY})).json()
    token = plain["output_ids"][5]
    first = plain["output_ids"].index(token)
    at_token = {"text": "Hi", "sampling_params": {**GREEDY, "stop_token_ids": [token]}}
    answer = (await http.post("/generate", json=at_token)).json()
    assert answer["output_ids"] == plain["output_ids"][: first + 1]
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": token}
    letter = next(c for c in plain["text"] if c != "�")
    chat = {"prompt": "Hi", "temperature": 0, "max_tokens": 12, "stop": letter, "ignore_eos": True}
    choice = (await http.post("/v1/completions", json=chat)).json()["choices"][0]
    assert (choice["finish_reason"], choice["matched_stop"]) == ("stop", letter)
    assert choice["text"] == plain["text"][: plain["text"].index(letter)]


DEEP = b"[" * 100_000
BAD: list[tuple[str, Any]] = [
    ("/generate", b"{"), ("/generate", b""), ("/generate", DEEP), ("/generate", b"[]"), ("/generate", b"\xff\xfe"),
    ("/generate", b'{"text": "x", "sampling_params": {"temperature": NaN}}'),
    ("/generate", b'{"text": "x", "sampling_params": {"max_new_tokens": 1' + b"0" * 5000 + b"}}"),
    ("/generate", b'{"text": "\\ud800"}'),
    ("/generate", {}), ("/generate", {"text": "x", "input_ids": [1]}), ("/generate", {"text": 5}),
    ("/generate", {"text": ""}), ("/generate", {"text": ["a", "b"]}), ("/generate", {"input_ids": []}),
    ("/generate", {"input_ids": [-1]}), ("/generate", {"input_ids": [260]}), ("/generate", {"input_ids": [1.5]}),
    ("/generate", {"input_ids": [True]}), ("/generate", {"input_ids": [1 << 70]}),
    ("/generate", {"input_ids": [[1], [2]]}), ("/generate", {"input_ids": "abc"}),
    ("/generate", {"text": "x" * 600}), ("/generate", {"text": "x" * 100_000}),
    ("/generate", {"text": "x", "sampling_params": 3}), ("/generate", {"text": "x", "stream": "yes"}),
    ("/generate", {"text": "x", "sampling_params": {"temperature": -1}}),
    ("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 0}}),
    ("/generate", {"text": "x", "sampling_params": {"top_p": 0}}),
    ("/generate", {"text": "x", "sampling_params": {"top_k": 2.5}}),
    ("/generate", {"text": "x", "sampling_params": {"stop": [1]}}),
    ("/generate", {"text": "x", "sampling_params": {"repetition_penalty": 1.2}}),
    ("/v1/completions", {"max_tokens": 3}), ("/v1/completions", {"prompt": "x", "n": 2}),
    ("/v1/completions", {"prompt": "x", "max_tokens": -3}), ("/v1/completions", {"prompt": "x", "model": 3}),
    ("/v1/completions", {"prompt": "x", "logprobs": 5}), ("/v1/completions", {"prompt": "x", "stream_options": 1}),
    ("/v1/chat/completions", {"messages": []}), ("/v1/chat/completions", {"messages": "hi"}),
    ("/v1/chat/completions", {"messages": [{"role": "tool", "content": "x"}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": 4}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
]  # fmt: skip


async def test_what_cannot_be_answered_gets_400_with_a_reason_and_the_server_lives(http: httpx.AsyncClient) -> None:
    for path, body in BAD:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await http.post(path, content=content)
        assert answer.status_code == 400, (path, content[:80], answer.text)
        message = answer.json()["error"]["message"]
        assert message and "\n" not in message and len(message) < 400
    huge = await http.post("/generate", content=b'{"text": "' + b"x" * requests.MOST_BYTES + b'"}')
    assert huge.status_code == 400 and "8 MiB" in huge.text
    assert (await http.get("/v1/completions")).status_code == 405
    assert (await http.post("/generate", json={"text": "Hi", "sampling_params": GREEDY})).status_code == 200


async def test_until_it_is_warm_and_after_a_fault_it_answers_503(state: State, http: httpx.AsyncClient) -> None:
    state.warmed = False
    for path in ("/health", "/health_generate"):
        assert (await http.get(path)).status_code == 503
    assert (await http.post("/generate", json={"text": "Hi"})).status_code == 503
    assert (await http.get("/model_info")).status_code == 200
    state.warmed = True
    assert (await http.get("/health")).status_code == 200
    before = state.worker.meter.generated
    assert (await http.get("/health_generate")).status_code == 200
    assert state.worker.meter.generated == before + 1
    state.worker.fault = "CUDA error: gone"
    for path in ("/health", "/health_generate"):
        assert "CUDA error: gone" in (await http.get(path)).text
    assert (await http.post("/generate", json={"text": "Hi"})).status_code == 503


async def test_health_generate_counts_another_request_s_progress(
    state: State, http: httpx.AsyncClient, rounds: asyncio.Event
) -> None:
    long = asyncio.create_task(
        http.post("/generate", json={"text": "Hi", "sampling_params": {**GREEDY, "max_new_tokens": 300}})
    )
    await rounds.wait()
    answers = await asyncio.gather(*(http.get("/health_generate") for _ in range(5)))
    assert {answer.status_code for answer in answers} == {200}
    assert not long.done() and state.worker.waiting == 1, "five probes made one request"
    assert (await long).status_code == 200


async def test_server_info_tells_flags_memory_and_the_shadow(state: State, http: httpx.AsyncClient) -> None:
    await http.post("/generate", json={"text": "Hi", "sampling_params": GREEDY})
    info = (await http.get("/server_info")).json()
    effective = sglang_http.effective(info)
    assert effective["context-length"] == 512 and effective["budget"] == 8 and effective["mode"] == "shadow-linear"
    assert effective["disable-cuda-graph"] is True and effective["max-running-requests"] == 1
    assert info["max_total_num_tokens"] == 512 + 18 and 0 < info["mem_fraction_static"] < 1
    inner = info["internal_states"][0]
    shadow = inner["shadow"]
    assert shadow["rounds"] == inner["spec_verify_ct"] > 0
    assert shadow["tree_tokens"] >= shadow["linear_tokens"] and shadow["disagreements"] == 0
    figures = sglang_http.figures_of_info(info)
    assert figures.tok_s and figures.accept_len == pytest.approx(shadow["linear_tokens"] / shadow["rounds"], abs=1e-4)
    assert (await http.get("/v1/models")).json()["data"][0]["id"] == "small"
    assert (await http.get("/model_info")).json()["is_generation"] is True


async def test_metrics_have_sglang_s_names_and_true_figures(state: State, http: httpx.AsyncClient) -> None:
    for _ in range(2):
        await http.post("/generate", json={"text": "Hi", "sampling_params": GREEDY})
    text = (await http.get("/metrics")).text
    label = '{model_name="small"}'
    assert f"sglang:generation_tokens_total{label} 24.0" in text and f"sglang:prompt_tokens_total{label} 4.0" in text
    assert f"sglang:num_requests_total{label} 2.0" in text
    assert f"sglang:e2e_request_latency_seconds_count{label} 2.0" in text
    assert f"sglang:spec_verify_calls_total{label} {float(state.worker.counts.rounds)}" in text
    found = sglang_http.figures(text)
    assert (found.running, found.waiting) == (0, 0) and found.accept_len is not None and found.tok_s == 0


async def test_a_client_that_goes_away_is_no_longer_decoded_for(
    state: State, http: httpx.AsyncClient, rounds: asyncio.Event
) -> None:
    body = {"text": "Hi", "sampling_params": {**GREEDY, "max_new_tokens": 400}}
    asked = asyncio.create_task(http.post("/generate", json=body))
    await rounds.wait()
    asked.cancel()
    await asyncio.wait({asked})
    assert await asyncio.to_thread(state.worker.close, 10) == 0
    assert 1 < state.worker.meter.generated < 400


async def test_the_key_is_asked_for_and_never_told(state: State) -> None:
    state.args.api_key = KEY
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(App(state).starlette()), base_url="http://server"
    ) as client:
        good = {"Authorization": f"Bearer {KEY}"}
        for path in ("/health", "/health_generate", "/metrics"):
            assert (await client.get(path)).status_code == 200
        for path in ("/model_info", "/server_info", "/v1/models"):
            for bad in (
                {},
                {"Authorization": "Bearer wrong"},
                {"Authorization": KEY},
                {"Authorization": "Bearer \xfc"},
            ):
                answer = await client.get(path, headers={k.encode(): v.encode("latin-1") for k, v in bad.items()})
                assert answer.status_code == 401 and KEY not in answer.text
            answer = await client.get(path, headers=good)
            assert answer.status_code == 200 and KEY not in answer.text
        assert (await client.post("/generate", json={"text": "Hi"})).status_code == 401
        assert (await client.post("/generate", json={"text": "Hi"}, headers=good)).status_code == 200
