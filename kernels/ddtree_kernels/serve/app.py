"""The endpoints."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ddtree_kernels.decode.sampling import Sampling
from ddtree_kernels.serve import requests
from ddtree_kernels.serve.decoding import Decoding, failed
from ddtree_kernels.serve.metrics import Metrics
from ddtree_kernels.serve.requests import Ask, RequestError
from ddtree_kernels.serve.state import State

OPEN = ("/health", "/health_generate", "/metrics")
"""Paths that need no key, as SGLang's."""
HEALTH_SECONDS = 20.0
"""How long /health_generate waits for its token, as SGLang does."""

Reader = Callable[[Mapping[str, Any], Any, int], Ask]


class App:
    """The endpoints over one state."""

    def __init__(self, state: State) -> None:
        self.state, self.metrics = state, Metrics(state)
        self.probe: asyncio.Task[bool] | None = None

        def post(path: str, reader: Reader) -> Route:
            async def answer(request: Request) -> Response:
                return await self.decode(request, reader)

            return Route(path, answer, methods=["POST"])

        def get(path: str, make: Callable[[], Any]) -> Route:
            async def answer(request: Request) -> Response:
                return JSONResponse(make())

            return Route(path, answer)

        self.routes = [
            Route("/health", self.health),
            Route("/health_generate", self.health_generate),
            get("/model_info", state.model_info),
            get("/server_info", state.server_info),
            get("/v1/models", self.models),
            post("/generate", requests.generate),
            post("/v1/completions", requests.completion),
            post("/v1/chat/completions", requests.chat),
            Route("/metrics", self.exposition),
        ]
        key = state.args.api_key
        self._key = key.encode() if key else None

    def starlette(self) -> Any:
        """The ASGI application; without a valid key where one is set, 401."""
        inner = Starlette(routes=self.routes)
        if self._key is None:
            return inner

        async def guarded(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http" and scope["path"] not in OPEN and not self._admits(Request(scope)):
                response = failed("a valid API key is needed: Authorization: Bearer KEY", 401)
                response.headers["WWW-Authenticate"] = "Bearer"
                await response(scope, receive, send)
                return
            await inner(scope, receive, send)

        return guarded

    def _admits(self, request: Request) -> bool:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        assert self._key is not None
        # compared in constant time whatever comes before
        right: bool = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), self._key)
        return right and kind.lower() == "bearer"

    # ---- endpoints

    async def health(self, request: Request) -> Response:
        """200 once a real generation came through and while decoding works."""
        return failed(self.state.refused, 503) if self.state.refused else Response()

    async def health_generate(self, request: Request) -> Response:
        """200 after one real token, or where a running request makes progress meanwhile. At most one at a time runs."""
        if self.state.refused:
            return failed(self.state.refused, 503)
        if self.probe is None or self.probe.done():
            self.probe = asyncio.create_task(self.one_token())
        since = time.monotonic()
        worker = self.state.worker
        while not self.probe.done():
            await asyncio.wait({self.probe}, timeout=0.1)
            if worker.progressed > since:
                return Response()
            if time.monotonic() - since > HEALTH_SECONDS:
                return failed(f"no token within {HEALTH_SECONDS:g} s", 503)
        return Response() if self.probe.result() else failed(self.state.refused or "decoding failed", 503)

    async def one_token(self, tokens: int = 1) -> bool:
        """Whether so many tokens can be generated; the queue's order holds for it too."""
        ask = Ask("generate", (0,), Sampling(tokens, temperature=0, ignore_eos=True))
        decoding = Decoding(self.state, self.metrics, ask)
        if decoding.submit() is not None:
            return False
        return (await decoding.end())["type"] == "length"

    def models(self) -> dict[str, Any]:
        """/v1/models."""
        state = self.state
        model = {
            "id": state.name, "object": "model", "created": int(time.time()), "owned_by": "ddtree-wrapper",
            "root": state.args.model_path, "parent": None, "max_model_len": state.loaded.engine.context,
        }  # fmt: skip
        return {"object": "list", "data": [model]}

    async def exposition(self, request: Request) -> Response:
        """/metrics."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def decode(self, request: Request, reader: Reader) -> Response:
        """A request that generates."""
        if self.state.refused:
            return failed(self.state.refused, 503)
        engine = self.state.loaded.engine
        tokenizer, context = engine.pair.tokenizer, engine.context
        try:
            body = await read_body(request)
            # a long text takes long to cut into tokens; others are answered meanwhile
            ask = await asyncio.to_thread(lambda: reader(requests.parse_json(body), tokenizer, context))
        except RequestError as error:
            return failed(str(error), 400)
        except ClientDisconnect:
            return Response(status_code=499)
        decoding = Decoding(self.state, self.metrics, ask)
        refused = decoding.submit()
        if refused is not None:
            return refused
        return decoding.stream() if ask.stream else await decoding.whole(request)


async def read_body(request: Request) -> bytes:
    """The body; RequestError as soon as it is longer than any prompt can be."""
    parts: list[bytes] = []
    length = 0
    async for part in request.stream():
        length += len(part)
        if length > requests.MOST_BYTES:
            raise RequestError(f"the body is longer than {requests.MOST_BYTES >> 20} MiB")
        parts.append(part)
    return b"".join(parts)
