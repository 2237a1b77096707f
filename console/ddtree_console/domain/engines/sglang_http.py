"""SGLang's endpoints: what to ask, best first, and how to read the answers. Pure; 0.4 to 0.5.23."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ddtree_console.domain.engines.base import Figures, Request
from ddtree_console.domain.secrets import MASK, is_secret_name

_INPUT_IDS = [1, 2, 3]
_METRIC = re.compile(r"^sglang[:_]([a-z_]+)(?:\{([^}]*)\})? (\S+)")
_OTHER_RANK = re.compile(r'\b(?:tp_rank|pp_rank|moe_ep_rank)="[1-9]')
# fields that share a flag: the server reports the field's name, an operator may have written the other
_ALIASES = {"tp-size": "tp", "dp-size": "dp", "pp-size": "pp", "ep-size": "ep", "model-path": "model"}


def info_requests() -> Sequence[Request]:
    """Model info; it needs no GPU work. The second is the spelling up to 0.5.6, the third every OpenAI server's."""
    return (Request("GET", "/model_info"), Request("GET", "/get_model_info"), Request("GET", "/v1/models"))


def server_info_requests() -> Sequence[Request]:
    """Effective arguments. It asks the scheduler: on a hung one it hangs."""
    return (Request("GET", "/server_info"), Request("GET", "/get_server_info"))


def token_requests(info: Mapping[str, Any]) -> Sequence[Request]:
    """One generated token. Without a tokenizer only input ids work, and output ids are the answer."""
    sampling = {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True}
    ids = Request("POST", "/generate", {"input_ids": list(_INPUT_IDS), "sampling_params": sampling})
    if info.get("skip_tokenizer_init") is True:
        return (ids,)
    model = info.get("served_model_name") or info.get("model_path") or "default"
    text = Request("POST", "/generate", {"text": "Hi", "sampling_params": sampling})
    openai = Request(
        "POST", "/v1/completions", {"model": str(model), "prompt": "Hi", "max_tokens": 1, "temperature": 0}
    )
    return (text, openai) if "skip_tokenizer_init" in info else (text, openai, ids)


def _positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def token_made(body: Any) -> bool:
    """Whether an answer (JSON, or its text or bytes) holds at least one generated token."""
    if isinstance(body, (bytes, str)):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            return False
    if isinstance(body, list):
        return any(token_made(part) for part in body if isinstance(part, dict))
    if not isinstance(body, dict) or body.get("error"):
        return False
    meta, usage = body.get("meta_info"), body.get("usage")
    if (
        isinstance(meta, dict)
        and isinstance(meta.get("finish_reason"), dict)
        and meta["finish_reason"].get("type") == "abort"
    ):
        return False
    ids = body.get("output_ids")
    if isinstance(ids, list) and ids:
        return True
    if isinstance(meta, dict) and _positive(meta.get("completion_tokens")):
        return True
    if isinstance(usage, dict) and _positive(usage.get("completion_tokens")):
        return True
    choices = body.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            message = choice.get("message")
            content = message.get("content") if isinstance(message, dict) else None
            if choice.get("text") or content:
                return True
    return bool(body.get("text")) if isinstance(body.get("text"), str) else False


def _states(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    states = info.get("internal_states")
    return [s for s in states if isinstance(s, Mapping)] if isinstance(states, list) else []


def effective(info: Mapping[str, Any]) -> dict[str, Any]:
    """Flag name with dashes -> effective value. max-running-requests is what the scheduler really admits: the argument
    can lie (a hybrid model's state cache caps it). Values of secret flags are masked."""
    out: dict[str, Any] = {}
    for key, value in info.items():
        if not isinstance(key, str) or key.startswith("_") or isinstance(value, Mapping) or key == "internal_states":
            continue
        name = key.replace("_", "-")
        out[name] = MASK if value and is_secret_name(name) else value
        if name in _ALIASES:
            out[_ALIASES[name]] = out[name]
    admitted = [
        s["effective_max_running_requests_per_dp"]
        for s in _states(info)
        if _positive(s.get("effective_max_running_requests_per_dp"))
    ]
    asked = info.get("max_running_requests")
    if admitted:
        dp = info.get("dp_size")
        real = min(admitted) * (dp if isinstance(dp, int) and dp > 0 else 1)
        out["max-running-requests"] = min(real, asked) if _positive(asked) else real
    return out


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def figures(metrics_text: str) -> Figures:
    """Figures in a /metrics answer, summed over data-parallel ranks. accept_len: None while nothing was verified."""
    found: dict[str, list[float]] = {}
    for line in metrics_text.splitlines():
        if not line.startswith("sglang"):
            continue
        match = _METRIC.match(line)
        if match is None or match.group(1) not in (
            "num_running_reqs",
            "num_queue_reqs",
            "gen_throughput",
            "spec_accept_length",
        ):
            continue
        if match.group(2) and _OTHER_RANK.search(match.group(2)):
            continue
        try:
            value = float(match.group(3))
        except ValueError:
            continue
        if 0 <= value < 1e15:  # NaN and infinities are no figures
            found.setdefault(match.group(1), []).append(value)
    running, waiting = found.get("num_running_reqs"), found.get("num_queue_reqs")
    speed = found.get("gen_throughput")
    return Figures(
        running=int(sum(running)) if running else None,
        waiting=int(sum(waiting)) if waiting else None,
        tok_s=sum(speed) if speed else None,
        accept_len=_mean([v for v in found.get("spec_accept_length", []) if v > 0]),
    )


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < 1e15 else None


def figures_of_info(info: Mapping[str, Any]) -> Figures:
    """Figures in a server-info answer: throughput and acceptance only, it does not tell running requests."""
    states = _states(info)
    speed = [v for v in (_number(s.get("last_gen_throughput")) for s in states) if v is not None]
    accept = [v for v in (_number(s.get("avg_spec_accept_length")) for s in states) if v]
    return Figures(tok_s=sum(speed) if speed else None, accept_len=_mean(accept))
