"""The ladder's questions to the server: model info, effective flags, one real token. One in flight, gently.

An endpoint that answered 404, 500 or another refusal is not asked again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ddtree_console.domain.engines.base import Engine, Request
from ddtree_console.hostside import ask
from ddtree_console.hostside.background import Background
from ddtree_console.hostside.ladder import Ladder
from ddtree_console.hostside.roots import Roots

INFO_EVERY_S = 2.0
TOKEN_EVERY_S = 2.0
INFO_TIMEOUT_S = 5.0
FLAGS_TIMEOUT_S = 10.0
TOKEN_TIMEOUT_S = 120.0
NOT_YET_S = 15.0
"""without a ready line, endpoints that all refused are tried once more after this."""
AGAIN = (408, 425, 429, 502, 503, 504)
"""answers of a server that is not there yet: asked again."""


def body_of(raw: bytes) -> Any:
    """The JSON in an answer, None when it is none."""
    try:
        return json.loads(raw)
    except ValueError:
        return None


def model_of(body: Any) -> str:
    """The model that a model-info answer names, '' when it names none."""
    if not isinstance(body, dict):
        return ""
    for key in ("served_model_name", "model_path", "model", "id"):
        if isinstance(body.get(key), str) and body[key]:
            return str(body[key])
    data = body.get("data")
    return model_of(data[0]) if isinstance(data, list) and data else ""


def serves_now(engine: Engine, port: int, address: str, bearer: str | None) -> str:
    """What answers on that port, asked of the server; '' when nothing does."""
    for request in engine.info_requests():
        answer = ask.ask(port, address, request.method, request.path, request.body, INFO_TIMEOUT_S, bearer)
        if answer.status == 200:
            return serves_words(model_of(body_of(answer.body)), engine, port)
        if answer.status is None:
            break
    return ""


def serves_words(model: str, engine: Engine, port: int) -> str:
    """Model, engine and port in words."""
    return f"{model or 'a model without a name'} ({engine.name}) on port {port}"


class Questions:
    """Asks for what the ladder's rung needs. step() never blocks; fileno() is readable when an answer came."""

    def __init__(self, roots: Roots, engine: Engine, ladder: Ladder, port: int) -> None:
        self._roots, self._engine, self._ladder, self._port = roots, engine, ladder, port
        self._work = Background()
        self._asked = ""
        self._next = 0.0
        self._info: list[Request] = list(engine.info_requests())
        self._flags: list[Request] = list(engine.server_info_requests())
        self._token: list[Request] | None = None
        self._revived = False
        self._exhausted: float | None = None
        self._refusals: list[str] = []
        self.model = ""

    def fileno(self) -> int:
        """What to wait on."""
        return self._work.fileno()

    @property
    def serves(self) -> str:
        """What answers, asked of the server."""
        return serves_words(self.model, self._engine, self._port)

    def step(self, now: float) -> None:
        """Takes an answer, asks the next question when its time has come."""
        ladder = self._ladder
        done, result = self._work.poll()
        if done:
            self._answer(now, *result) if isinstance(result, tuple) else self._later(now)
        if self._work.busy or ladder.verdict is not None or ladder.ended:
            return
        waited = self._exhausted is not None and now - self._exhausted >= NOT_YET_S
        if (ladder.log.ready or waited) and not self._revived:
            # Until the ready line (or, where there is none, for a while) a 404 or 500 may only have meant "not yet".
            self._revived, self._next, self._token = True, now, None
            self._info = list(self._engine.info_requests())
        serving = ladder.listener.state in ("ours", "unknown") or ladder.expect.from_info
        if not serving or now < self._next:
            return
        if ladder.rung == "info":
            self._ask(now, "info", self._info, INFO_TIMEOUT_S)
        elif ladder.rung == "token" and ladder.server_info is None and self._flags:
            self._ask(now, "flags", self._flags, FLAGS_TIMEOUT_S)
        elif ladder.rung == "token":
            if self._token is None:
                self._token = list(self._engine.token_requests(ladder.server_info or {}))
            self._ask(now, "token", self._token, TOKEN_TIMEOUT_S)

    def _ask(self, now: float, what: str, requests: Sequence[Request], timeout: float) -> None:
        if not requests:
            if self._revived:
                said = "; ".join(self._refusals[-3:]) or "the engine knows no endpoint"
                self._ladder.give_up(now, "other", f"no endpoint gives {what}: {said}")
            else:
                self._exhausted = now if self._exhausted is None else self._exhausted
                self._later(now, 0.2)
            return
        request = requests[0]
        address, pid = self._ladder.listener.address, self._ladder.main_pid

        def call() -> tuple[str, Request, ask.Answer]:
            bearer = ask.bearer_of(self._roots, pid) if pid else None
            return (
                what,
                request,
                ask.ask(self._port, address, request.method, request.path, request.body, timeout, bearer),
            )

        self._work.start(call)

    def _later(self, now: float, seconds: float = INFO_EVERY_S) -> None:
        self._next = now + seconds

    def _answer(self, now: float, what: str, request: Request, answer: ask.Answer) -> None:
        queue = {"info": self._info, "flags": self._flags, "token": self._token or []}[what]
        body = body_of(answer.body)
        if answer.status == 200 and self._took(now, what, body, answer):
            self._next = now
            return
        if answer.status is None or answer.status in AGAIN:
            if what == "flags":
                # Asked once: on a hung scheduler this endpoint hangs too.
                self._ladder.server_info = {}
                self._next = now
            else:
                self._later(now, TOKEN_EVERY_S if what == "token" else INFO_EVERY_S)
            return
        said = "an answer without a token" if answer.status == 200 else str(answer.status)
        self._refusals.append(f"{request.method} {request.path} gave {said}")
        if request in queue:
            queue.remove(request)
        if what == "flags" and not queue:
            self._ladder.server_info = {}
        self._next = now

    def _took(self, now: float, what: str, body: Any, answer: ask.Answer) -> bool:
        ladder = self._ladder
        if what == "info":
            self.model = model_of(body)
            ladder.on_info(now, body if isinstance(body, Mapping) else {}, self.model)
            return True
        if what == "flags":
            ladder.server_info = dict(body) if isinstance(body, Mapping) else {}
            return True
        if not self._engine.token_made(body):
            return False
        if ladder.server_info:
            ladder.on_effective(now, self._engine.effective(ladder.server_info))
        else:
            ladder.on_effective(now, {})
        ladder.on_token(now, f"first token after {answer.seconds:.2f} s")
        return True

    def close(self) -> None:
        """Frees what it holds."""
        self._work.close()
