"""The server on a GPU: the tiny pair in captured graphs, end to end. Without a GPU it skips."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ddtree_kernels.tiny.prompts import prompt_set
from tests.serve.process import Process

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def test_it_captures_serves_streams_and_drains(tmp_path: Path) -> None:
    flags = (
        "--mode",
        "ddtree",
        "--context-length",
        "1k",
        "--mem-fraction-static",
        "0.01",
        "--decode-log-interval",
        "5",
    )
    with Process("tiny", tmp_path / "log", *flags) as server:
        text = server.text
        assert "Capture target verify CUDA graph begin." in text and "Capture target verify CUDA graph end." in text
        info = server.http.get("/server_info").json()
        assert (info["device"], info["dtype"], info["cuda_graph"]) == ("cuda", "bfloat16", "on")
        prompt = prompt_set(1)["log"][0]
        ask = {"text": prompt, "sampling_params": {"max_new_tokens": 48, "temperature": 0, "ignore_eos": True}}
        whole = server.http.post("/generate", json=ask).json()
        assert whole["meta_info"]["completion_tokens"] == 48
        assert server.http.post("/generate", json=ask).json()["text"] == whole["text"]
        with server.http.stream("POST", "/generate", json={**ask, "stream": True}) as answer:
            lines = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {")]
        assert lines[-1]["text"] == whole["text"] and len(lines) > 2
        warm = {**ask, "sampling_params": {**ask["sampling_params"], "temperature": 1.0}}  # type: ignore[dict-item]
        assert server.http.post("/generate", json=warm).json()["meta_info"]["completion_tokens"] == 48
        too_long = {"input_ids": [5] * 2000, "sampling_params": {"max_new_tokens": 4}}
        assert server.http.post("/generate", json=too_long).status_code == 400
        assert server.http.get("/health_generate").status_code == 200
        assert "cuda graph: True" in server.line("Decode batch")
        assert server.stop() == 0
