"""A process that answers like SGLang, as far as the plan asks: for tests of the plan's own logic.

Its next token is a function of the sequence; a DDTREE server gives the same tokens in fewer passes, one with a broken
mask gives others, and what must be refused is refused. WOUNDED names servers that show a fault.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import zlib
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ARGV = sys.argv[1:]
BUDGET, BROKEN = int(os.environ.get("DDTREE_BUDGET", "0")), os.environ.get("DDTREE_TEST_BREAK_MASK", "")
KIND = "ar" if "--speculative-algorithm" not in ARGV else ("tree" if BUDGET else "dflash")
LENGTH = {"ar": 1, "dflash": 4, "tree": 4 + BUDGET // 15}[KIND]
GIVEN = {"answered": 0}


def option(name: str, default: str = "") -> str:
    """The last value of a flag."""
    return next((b for a, b in zip(reversed(ARGV[:-1]), reversed(ARGV[1:]), strict=True) if a == name), default)


def token(sequence: Sequence[int], temperature: float) -> int:
    """The next one; other servers' under a broken mask."""
    if temperature:
        return random.choice((5, 5, 6, 7))
    return 4 + zlib.crc32(f"{BROKEN}{list(sequence)}".encode()) % 500


def answer(ids: Sequence[int], sampling: dict[str, Any], margins: bool) -> dict[str, Any]:
    """One request's answer."""
    made: list[int] = []
    for _ in range(int(sampling["max_new_tokens"])):
        made.append(token([*ids, *made], float(sampling.get("temperature", 0))))
    time.sleep(0.0005 * len(made) / LENGTH)
    meta: dict[str, Any] = {"finish_reason": {"type": "length"}}
    if KIND != "ar":
        meta["spec_verify_ct"] = max(1, len(made) // LENGTH)
    if margins:
        meta["output_top_logprobs"] = [[[-0.1, 1, None], [-3.0, 2, None]] for _ in made]
    GIVEN["answered"] += 1
    return {"output_ids": made, "meta_info": meta}


class Listener(ThreadingHTTPServer):
    """Takes as many connections at once as the plan opens."""

    request_queue_size = 64


class Handler(BaseHTTPRequestHandler):
    """The endpoints that the plan asks."""

    def do_GET(self) -> None:
        """Health, server info, and nothing much of the others."""
        section = {"shorter_rounds": 0, "astray_rounds": 0, "tree_length": LENGTH, "chain_length": 4.0,
                   "steps": GIVEN["answered"], "ms": {"verify": 0.5}}  # fmt: skip
        self._send({"internal_states": [{"ddtree": section} if KIND == "tree" else {}]})

    def do_POST(self) -> None:
        """A generation, of one prompt or of several."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/generate":
            self._send({})
            return
        ids, sampling, margins = body["input_ids"], body["sampling_params"], bool(body.get("return_logprob"))
        several = isinstance(ids[0], list)
        self._send([answer(i, sampling, margins) for i in ids] if several else answer(ids, sampling, margins))

    def _send(self, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def main() -> None:
    """Serves, refuses or dies."""
    wounded = dict(word.split("=") for word in os.environ.get("WOUNDED", "").split())
    me = f"{KIND}-{BUDGET}" if BUDGET else KIND
    if KIND == "tree" and (option("--attention-backend") == "fa3" or option("--page-size") or BUDGET < 15
                           or option("--speculative-eagle-topk") or BROKEN == "start"):  # fmt: skip
        sys.exit("ValueError: DDTREE refuses: it is not supported")
    if wounded.get(me) == "memory":
        mark = Path(os.environ["TRITON_CACHE_DIR"] + ".once")
        if not mark.exists():
            mark.touch()
            sys.exit("torch.OutOfMemoryError: CUDA out of memory.")
    if wounded.get(me) == "hang":
        time.sleep(600)
    if wounded.get(me) == "dies":
        sys.exit("Segmentation fault")
    print("cuda graph: True\nKV cache pool is full. Retract requests. ", flush=True)
    Listener(("127.0.0.1", int(option("--port"))), Handler).serve_forever()


if __name__ == "__main__":
    main()
