"""What answers look like: SGLang's /generate with meta_info, OpenAI's completions and chats, whole and in parts."""

from __future__ import annotations

import json
import time
from typing import Any

from ddtree_kernels.decode.job import Job
from ddtree_kernels.serve.requests import Ask

DONE = b"data: [DONE]\n\n"


def event(body: object) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def error_body(message: str, code: int) -> dict[str, Any]:
    """An error as both dialects' clients read it."""
    kind = {400: "BadRequestError", 401: "AuthenticationError", 503: "ServiceUnavailable"}.get(
        code, "InternalServerError"
    )
    return {
        "error": {"message": message, "type": kind, "code": code},
        "object": "error",
        "message": message,
        "code": code,
    }


def openai_reason(end: dict[str, Any] | None) -> str | None:
    """OpenAI's finish_reason: stop or length; abort as SGLang has it."""
    return None if end is None else str(end["type"])


class Shape:
    """The bodies of one request's answer."""

    def __init__(self, ask: Ask, job: Job, name: str, drafted: int, spec: bool) -> None:
        """name: the served model. drafted: tokens verified a round but the root. spec: whether a drafter is there."""
        self.ask, self.job, self.name, self.drafted, self.spec = ask, job, ask.model or name, drafted, spec
        self.created = int(time.time())
        self.text = ""
        self.ids: list[int] = []
        self._first = True

    def meta(self, end: dict[str, Any] | None) -> dict[str, Any]:
        """SGLang's meta_info."""
        job = self.job
        now = job.ended or time.monotonic()
        out: dict[str, Any] = {
            "id": self.ask.extra.get("rid") or job.id,
            "finish_reason": end,
            "prompt_tokens": len(job.prompt),
            "completion_tokens": job.tokens,
            "cached_tokens": 0,
            "e2e_latency": round(now - job.created, 6),
            "queue_time": round((job.started or now) - job.created, 6),
        }
        length = job.counts.accept_length
        if self.spec and length is not None:
            out["spec_accept_length"] = round(length, 4)
            out["spec_accept_rate"] = round((length - 1) / self.drafted, 4) if self.drafted else 0.0
            out["spec_verify_ct"] = job.counts.rounds
            if job.counts.would != job.counts.committed:
                out["spec_tree_accept_length"] = round(job.counts.would / job.counts.rounds, 4)
        return out

    def usage(self) -> dict[str, int]:
        """OpenAI's usage."""
        prompt, made = len(self.job.prompt), self.job.tokens
        return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}

    def whole(self, end: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request that does not stream."""
        if self.ask.kind == "generate":
            return {"text": self.text, "output_ids": self.ids, "meta_info": self.meta(end)}
        choice: dict[str, Any] = {"index": 0, "finish_reason": openai_reason(end), "logprobs": None}
        if isinstance(end.get("matched"), int | str):
            choice["matched_stop"] = end["matched"]
        if self.ask.kind == "chat":
            choice["message"] = {"role": "assistant", "content": self.text}
        else:
            choice["text"] = self.text
        return {**self._head("chat.completion" if self.ask.kind == "chat" else "text_completion", choice),
                "usage": self.usage(), "meta_info": self.meta(end)}  # fmt: skip

    def part(self, text: str, end: dict[str, Any] | None) -> dict[str, Any] | None:
        """One event of a stream; None where there is nothing to tell. /generate tells all text so far, as SGLang."""
        if self.ask.kind == "generate":
            return {"text": self.text, "output_ids": self.ids, "meta_info": self.meta(end)}
        if not text and end is None and not self._first:
            return None
        choice: dict[str, Any] = {"index": 0, "finish_reason": openai_reason(end), "logprobs": None}
        if self.ask.kind == "chat":
            role = {"role": "assistant"} if self._first else {}
            choice["delta"] = {**role, "content": text}
        else:
            choice["text"] = text
        self._first = False
        return self._head("chat.completion.chunk" if self.ask.kind == "chat" else "text_completion", choice)

    def last_usage(self) -> dict[str, Any]:
        """The part behind the last of a stream that asked for its usage."""
        kind = "chat.completion.chunk" if self.ask.kind == "chat" else "text_completion"
        return {**self._head(kind, None), "usage": self.usage()}

    def _head(self, kind: str, choice: dict[str, Any] | None) -> dict[str, Any]:
        prefix = "chatcmpl-" if self.ask.kind == "chat" else "cmpl-"
        return {"id": prefix + self.job.id, "object": kind, "created": self.created, "model": self.name,
                "choices": [] if choice is None else [choice]}  # fmt: skip
