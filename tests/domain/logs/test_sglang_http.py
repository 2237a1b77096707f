"""Endpoints and answers as a real 0.5.12 gave them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.demo import recordings
from ddtree_console.domain.engines import sglang_http
from ddtree_console.domain.engines.base import Figures

ANSWERS: dict[str, Any] = recordings.load("dflash-healthy").responses
INFO = ANSWERS["/server_info"][1]


def test_what_is_asked_and_in_which_order() -> None:
    assert [r.path for r in sglang_http.info_requests()] == ["/model_info", "/get_model_info", "/v1/models"]
    assert [r.path for r in sglang_http.server_info_requests()] == ["/server_info", "/get_server_info"]
    assert not any(r.path.startswith("/health") for r in sglang_http.info_requests())


def test_a_server_without_tokenizer_is_asked_with_ids() -> None:
    requests = sglang_http.token_requests(INFO)
    assert [r.path for r in requests] == ["/generate"]
    assert requests[0].body is not None and requests[0].body["input_ids"]
    assert requests[0].body["sampling_params"]["max_new_tokens"] == 1


def test_other_servers_are_asked_with_text_first() -> None:
    requests = sglang_http.token_requests(
        {"skip_tokenizer_init": False, "model_path": "/m", "served_model_name": "mine"}
    )
    assert [r.path for r in requests] == ["/generate", "/v1/completions"]
    assert requests[1].body is not None and requests[1].body["model"] == "mine"
    unknown = sglang_http.token_requests({})
    assert [r.path for r in unknown] == ["/generate", "/v1/completions", "/generate"]
    assert unknown[2].body is not None and "input_ids" in unknown[2].body


def test_what_counts_as_a_token() -> None:
    assert sglang_http.token_made(ANSWERS["/generate"][1])
    assert sglang_http.token_made(json.dumps(ANSWERS["/generate"][1]).encode())
    assert sglang_http.token_made({"output_ids": [5]})
    assert sglang_http.token_made([{"text": "a"}])
    assert sglang_http.token_made({"choices": [{"text": "x"}]})
    assert sglang_http.token_made({"choices": [{"text": ""}], "usage": {"completion_tokens": 1}})
    assert sglang_http.token_made({"choices": [{"message": {"content": "x"}}]})
    nothings: list[Any] = [
        {}, [], None, "", b"not json", {"error": {"message": "x"}}, {"output_ids": []}, {"text": ""}, {"choices": []},
        {"choices": [{"text": ""}]}, ANSWERS["/v1/models"][1], ANSWERS["/model_info"][1],
        {"text": "x", "meta_info": {"finish_reason": {"type": "abort"}}},
    ]  # fmt: skip
    for nothing in nothings:
        assert not sglang_http.token_made(nothing), nothing


def test_effective_flags() -> None:
    flags = sglang_http.effective(INFO)
    assert flags["mem-fraction-static"] == 0.3
    assert flags["context-length"] == 8192
    assert flags["disable-cuda-graph"] is False
    assert flags["speculative-algorithm"] == "DFLASH"
    assert flags["tp"] == flags["tp-size"] == 1
    assert flags["model"] == flags["model-path"] == "/models/qwen3-target"
    assert flags["max-running-requests"] == 48
    assert "internal-states" not in flags


def test_concurrency_is_what_the_scheduler_admits() -> None:
    capped = {
        "max_running_requests": 48,
        "dp_size": 2,
        "internal_states": [{"effective_max_running_requests_per_dp": 1}] * 2,
    }
    assert sglang_http.effective(capped)["max-running-requests"] == 2
    roomy = {"max_running_requests": 4, "internal_states": [{"effective_max_running_requests_per_dp": 48}]}
    assert sglang_http.effective(roomy)["max-running-requests"] == 4


def test_a_key_in_server_info_goes_no_further() -> None:
    assert sglang_http.effective({"api_key": "CANARY", "admin_api_key": None}) == {
        "api-key": "***",
        "admin-api-key": None,
    }


def test_figures_of_metrics_and_info() -> None:
    idle = sglang_http.figures(ANSWERS["/metrics"][1])
    assert idle == Figures(running=0, waiting=0, tok_s=0.0, accept_len=None)
    after = sglang_http.figures(ANSWERS["/metrics after"][1])
    assert after.tok_s is not None and after.tok_s > 100
    assert after.accept_len == 1.0
    assert sglang_http.figures_of_info(INFO) == Figures(tok_s=0.0)
    busy = sglang_http.figures_of_info(ANSWERS["/get_server_info after"][1])
    assert busy.tok_s is not None and busy.tok_s > 100
    assert busy.running is None


def test_figures_sum_replicas_and_not_ranks() -> None:
    text = "\n".join(
        [f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}"}} 3.0' for dp in range(2) for tp in range(2)]
        + ["sglang:gen_throughput NaN", "sglang:spec_accept_length{} +Inf", "sglang:num_queue_reqs", "other 5"]
    )
    assert sglang_http.figures(text) == Figures(running=6)


KEYS = st.sampled_from(
    [
        *("internal_states", "output_ids", "text", "meta_info", "choices", "usage", "message", "dp_size", "api_key"),
        *("effective_max_running_requests_per_dp", "last_gen_throughput", "avg_spec_accept_length"),
        *("max_running_requests", "error", "finish_reason"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(KEYS, x, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(KEYS, JSON), JSON, st.text())
def test_no_answer_raises(info: dict[str, Any], body: Any, metrics: str) -> None:
    sglang_http.token_requests(info)
    sglang_http.effective(info)
    sglang_http.figures_of_info(info)
    assert sglang_http.token_made(body) in (True, False)
    sglang_http.figures(metrics)
    sglang_http.figures(f"sglang:gen_throughput {metrics}")
