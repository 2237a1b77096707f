"""From a request that was understood to its answer: submits it, follows it, and cancels it when the client goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from ddtree_kernels.decode.engine import PromptError
from ddtree_kernels.decode.job import Job, Part
from ddtree_kernels.decode.text import TextStream
from ddtree_kernels.decode.worker import Closed, QueueFull
from ddtree_kernels.serve import answers
from ddtree_kernels.serve.metrics import Metrics
from ddtree_kernels.serve.requests import Ask
from ddtree_kernels.serve.state import State


class Decoding:
    """One request at work."""

    def __init__(self, state: State, metrics: Metrics, ask: Ask) -> None:
        loop = asyncio.get_running_loop()
        self.state, self.metrics, self.ask = state, metrics, ask
        self.parts: asyncio.Queue[Part] = asyncio.Queue()
        text = TextStream(state.loaded.engine.pair.tokenizer.decode, ask.sampling.stop)

        def give(part: Part) -> None:
            loop.call_soon_threadsafe(self.parts.put_nowait, part)

        self.job = Job(ask.prompt, ask.sampling, text, give)
        speculative = state.loaded.settings.drafts
        self.shape = answers.Shape(ask, self.job, state.name, state.drafted, speculative)

    def submit(self) -> Response | None:
        """Into the queue; the answer where that cannot be."""
        try:
            self.state.worker.submit(self.job)
        except PromptError as error:
            return failed(str(error), 400)
        except (QueueFull, Closed) as error:
            return failed(str(error), 503)
        return None

    async def follow(self) -> AsyncIterator[Part]:
        """Its parts up to the end; leaving early cancels it."""
        part = Part()
        try:
            while part.end is None:
                part = await self.parts.get()
                self.shape.text += part.text
                self.shape.ids.extend(part.tokens)
                yield part
        finally:
            if part.end is None:
                self.state.worker.cancel(self.job)
            self.metrics.ended(self.job, part.end is None or part.end["type"] == "abort")

    async def end(self) -> dict[str, Any]:
        """Waits for the end and gives it."""
        end: dict[str, Any] = {}
        async for part in self.follow():
            end = part.end or end
        return end

    async def whole(self, request: Request) -> Response:
        """The whole answer, unless the client goes first."""
        waiting = asyncio.ensure_future(self.end())
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                return Response(status_code=499)
            end = waiting.result()
        finally:
            for task in (waiting, gone):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        if end["type"] == "abort":
            return failed(str(end["message"]), 503 if self.state.refused else 500)
        return JSONResponse(self.shape.whole(end))

    def stream(self) -> Response:
        """Server-sent events up to [DONE]."""
        return StreamingResponse(self._events(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})

    async def _events(self) -> AsyncIterator[bytes]:
        async for part in self.follow():
            if part.end is not None and part.end["type"] == "abort":
                yield answers.event(answers.error_body(str(part.end["message"]), 503 if self.state.refused else 500))
                break
            body = self.shape.part(part.text, part.end)
            if body is not None:
                yield answers.event(body)
        else:
            if self.ask.usage:
                yield answers.event(self.shape.last_usage())
        yield answers.DONE


async def _gone(request: Request) -> None:
    """Until the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def failed(message: str, code: int) -> JSONResponse:
    """An error's answer."""
    return JSONResponse(answers.error_body(message, code), code)
