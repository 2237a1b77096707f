"""Bodies of requests: SGLang's and OpenAI's fields to a prompt and a Sampling, or the one thing that is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddtree_kernels.decode.sampling import Sampling

if TYPE_CHECKING:
    from ddtree_kernels.models.api import Tokenizer

MOST_BYTES = 8 << 20
"""of a body: a prompt of a million tokens, written as numbers, is no longer."""
MOST_LETTERS = 64
"""a token on average, far above what any text has."""
_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "n": (1,), "best_of": (1,), "frequency_penalty": (0,), "presence_penalty": (0,), "repetition_penalty": (1,),
    "min_new_tokens": (0,), "min_tokens": (0,), "logprobs": (False, 0), "top_logprobs": (0,), "echo": (False,),
    "return_logprob": (False,), "suffix": ("",), "tools": ([],), "tool_choice": ("none", "auto"), "logit_bias": ({},),
    "json_schema": (), "regex": (), "ebnf": (), "structural_tag": (), "no_stop_trim": (False,), "image_data": (),
    "skip_special_tokens": (True,), "response_format": ({"type": "text"},), "input_embeds": (),
}  # fmt: skip
"""Fields that others act on and this server does not: None and these values ask for nothing."""


class RequestError(ValueError):
    """A request that cannot be answered; one line for a 400."""


@dataclass(frozen=True)
class Ask:
    """A request that was understood. kind: generate | completion | chat."""

    kind: str
    prompt: tuple[int, ...]
    sampling: Sampling
    stream: bool = False
    usage: bool = False
    """A stream ends with a part that holds the usage."""
    model: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


def parse_json(body: bytes) -> dict[str, Any]:
    """The JSON object in a body. RequestError for anything else, however deep or strange."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
        raise RequestError(f"the body is no JSON: {why}") from None
    if not isinstance(found, dict):
        raise RequestError(f"the body is a JSON {type(found).__name__}, not an object")
    return found


class _Fields:
    """Checked access to a body's fields; null counts as absent."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw
        for name, allowed in _NEUTRAL.items():
            value = raw.get(name)
            if value is not None and not any(value == one for one in allowed):
                raise RequestError(f"{name} {json.dumps(value)[:60]} is not supported by this server")

    def number(self, name: str, default: float, low: float, high: float, *, open_low: bool = False) -> float:
        """A finite number within limits."""
        value = self.raw.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise RequestError(f"{name} must be a number, not {json.dumps(value)[:60]}")
        if not low <= value <= high or (open_low and value == low):
            raise RequestError(f"{name} must be {'above' if open_low else 'from'} {low:g} to {high:g}, not {value:g}")
        return float(value)

    def count(self, name: str, default: int | None, low: int) -> int | None:
        """A whole number from `low`."""
        value = self.raw.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise RequestError(f"{name} must be a whole number, not {json.dumps(value)[:60]}")
        if not low <= value < 1 << 62:
            raise RequestError(f"{name} must be at least {low}, not {str(value)[:30]}")
        return value

    def truth(self, name: str, default: bool = False) -> bool:
        """true or false."""
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise RequestError(f"{name} must be true or false, not {json.dumps(value)[:60]}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A text or a list of texts."""
        value = self.raw.get(name)
        items = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(items, list) or len(items) > 64 or not all(isinstance(item, str) for item in items):
            raise RequestError(f"{name} must be a text or a list of at most 64 texts")
        return tuple(item for item in items if item)

    def tokens(self, name: str) -> tuple[int, ...]:
        """A list of token ids; whether they are in the vocabulary is the decoder's to say."""
        value = self.raw.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise RequestError(f"{name} must be a list of token ids")
        if value and isinstance(value[0], list):
            raise RequestError(f"{name} holds several prompts: send one a request")
        wrong = next((v for v in value if isinstance(v, bool) or not isinstance(v, int) or not 0 <= v < 1 << 31), None)
        if wrong is not None:
            raise RequestError(f"{name} holds {json.dumps(wrong)[:60]}, which is no token id")
        return tuple(value)

    def sampling(self, most: int | None, seed: str) -> Sampling:
        """The fields that both dialects share."""
        top_k = self.count("top_k", -1, -1)
        return Sampling(
            max_new_tokens=1 << 40 if most is None else most,
            temperature=self.number("temperature", 1.0, 0, 1000),
            top_p=self.number("top_p", 1.0, 0, 1, open_low=True),
            top_k=0 if top_k is None or top_k < 0 else top_k,
            min_p=self.number("min_p", 0.0, 0, 1),
            stop=self.texts("stop"),
            stop_token_ids=self.tokens("stop_token_ids"),
            ignore_eos=self.truth("ignore_eos"),
            seed=self.count(seed, None, 0),
        )


def _encode(text: str, tokenizer: Tokenizer, context: int) -> tuple[int, ...]:
    if len(text) > MOST_LETTERS * context:  # cutting it into tokens would take long, and only to refuse it
        raise RequestError(f"the prompt has {len(text)} characters; the context length is {context} tokens")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise RequestError("the prompt holds half of a surrogate pair, which is no text") from None
    return tuple(tokenizer.encode(text))


def generate(raw: Mapping[str, Any], tokenizer: Tokenizer, context: int) -> Ask:
    """SGLang's /generate: text or input_ids, sampling_params. RequestError."""
    fields = _Fields(raw)
    given = raw.get("sampling_params")
    if given is not None and not isinstance(given, dict):
        raise RequestError("sampling_params must be an object")
    inner = _Fields(given or {})
    sampling = inner.sampling(inner.count("max_new_tokens", 128, 1), "sampling_seed")
    text, ids = raw.get("text"), fields.tokens("input_ids")
    if (text is None) == (not ids):
        raise RequestError("give either text or input_ids")
    if text is not None and not isinstance(text, str):
        raise RequestError("text must be one text: send one prompt a request")
    prompt = ids if text is None else _encode(text, tokenizer, context)
    return Ask("generate", prompt, sampling, fields.truth("stream"), extra={"rid": fields.raw.get("rid")})


def completion(raw: Mapping[str, Any], tokenizer: Tokenizer, context: int) -> Ask:
    """OpenAI's /v1/completions; model may be left out. RequestError."""
    fields = _Fields(raw)
    prompt = raw.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    if isinstance(prompt, str):
        ids = _encode(prompt, tokenizer, context)
    elif isinstance(prompt, list):
        ids = fields.tokens("prompt")
    else:
        raise RequestError("prompt must be a text or a list of token ids")
    return _openai("completion", fields, ids, fields.count("max_tokens", 16, 1))


def chat(raw: Mapping[str, Any], tokenizer: Tokenizer, context: int) -> Ask:
    """OpenAI's /v1/chat/completions; model may be left out. RequestError."""
    fields = _Fields(raw)
    messages = raw.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages must be a list of at least one message")
    turns = [_message(message) for message in messages]
    most = fields.count("max_completion_tokens", fields.count("max_tokens", None, 1), 1)
    return _openai("chat", fields, _encode(tokenizer.chat(turns), tokenizer, context), most)


def _message(message: Any) -> dict[str, str]:
    role = message.get("role") if isinstance(message, dict) else None
    if role not in ("system", "user", "assistant"):
        raise RequestError("a message needs a role: system, user or assistant")
    content = message.get("content")
    if isinstance(content, list):
        parts = [
            part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content
        ]
        if not all(isinstance(part, str) for part in parts):
            raise RequestError("content may hold parts of type text only")
        content = "".join(str(part) for part in parts)
    if not isinstance(content, str):
        raise RequestError("content must be a text")
    return {"role": role, "content": content}


def _openai(kind: str, fields: _Fields, prompt: tuple[int, ...], most: int | None) -> Ask:
    options = fields.raw.get("stream_options") or {}
    if not isinstance(options, dict):
        raise RequestError("stream_options must be an object")
    model = fields.raw.get("model")
    if model is not None and not isinstance(model, str):
        raise RequestError("model must be a text")
    return Ask(
        kind, prompt, fields.sampling(most, "seed"), fields.truth("stream"),
        usage=_Fields(options).truth("include_usage"), model=model or "",
    )  # fmt: skip
