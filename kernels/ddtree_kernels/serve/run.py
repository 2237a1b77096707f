"""A server's life: loaded, listening, warm, ready; after SIGTERM it drains and ends."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from ddtree_kernels.decode.meter import Meter
from ddtree_kernels.decode.worker import Worker
from ddtree_kernels.serve import port
from ddtree_kernels.serve.app import App
from ddtree_kernels.serve.load import Loaded
from ddtree_kernels.serve.log import say
from ddtree_kernels.serve.notify import notify
from ddtree_kernels.serve.state import State

uvicorn_log = logging.getLogger("uvicorn.error")
WARM_TOKENS = 8
"""Tokens of the first generation: the prompt's pass and at least one round."""


class _Server(uvicorn.Server):
    """Signals are ours: they drain, and the exit status stays 0."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's; then `up` is set."""
        await super().startup(sockets=sockets)
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is captured."""
        yield


def serve(args: argparse.Namespace, loaded: Loaded, bound: socket.socket) -> int:
    """Serves until SIGTERM or SIGINT; the exit status."""
    engine = loaded.engine
    drafted = engine.round.nodes - 1 if loaded.settings.drafts else 0
    meter = Meter(say, interval=args.decode_log_interval, drafted=drafted, graphs=not loaded.graphs)
    worker = Worker(engine, most_waiting=args.max_queued_requests, meter=meter, seed=args.random_seed)
    return asyncio.run(Life(State(args, loaded, worker), bound).run())


class Life:
    """From a loaded decoder and a bound socket to the end."""

    def __init__(self, state: State, bound: socket.socket) -> None:
        """Nothing happens yet."""
        self.state, self.bound = state, bound
        self.app = App(state)
        self.ready, self.asked = asyncio.Event(), asyncio.Event()
        """Warm; asked to stop."""
        config = uvicorn.Config(
            self.app.starlette(), log_level="info", lifespan="off", access_log=True, server_header=False,
            timeout_graceful_shutdown=max(1, round(state.args.drain_seconds)), timeout_keep_alive=5,
        )  # fmt: skip
        self.server = _Server(config)

    async def run(self) -> int:
        """0 after a wanted end, 1 where the first generation failed."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        port.listen(self.bound)
        self.state.worker.start()
        serving = asyncio.create_task(self.server.serve(sockets=[self.bound]))
        warming = asyncio.create_task(self._warm_up())
        asked = asyncio.create_task(self.asked.wait())
        await asyncio.wait({serving, warming, asked}, return_when=asyncio.FIRST_COMPLETED)
        good = True
        if warming.done() and not self.asked.is_set():
            good = warming.result()
            if good:
                self._ready()
                await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
        await self._end(serving)
        for task in (warming, asked):
            task.cancel()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        return 0 if good else 1

    async def _warm_up(self) -> bool:
        """A real generation of more than a round."""
        since = time.monotonic()
        await self.server.up.wait()
        # uvicorn itself says so only where it made the socket
        uvicorn_log.info("Uvicorn running on http://%s:%s (Press CTRL+C to quit)", *self.bound.getsockname()[:2])
        good = await self.app.one_token(WARM_TOKENS)
        self.state.loaded.times["warm_up"] = round(time.monotonic() - since, 3)
        return good

    def _ready(self) -> None:
        self.state.warmed = True
        say("The server is fired up and ready to roll!")
        notify("READY=1\nSTATUS=serving")
        self.ready.set()

    def _stop(self, number: int) -> None:
        if self.asked.is_set():
            return
        self.state.draining = True
        seconds = self.state.args.drain_seconds
        name = signal.Signals(number).name
        say(f"{name} received. signum={number}: requests have {seconds:g} s to finish, then the server ends")
        notify("STOPPING=1\nSTATUS=draining")
        self.asked.set()

    async def _end(self, serving: asyncio.Task[Any]) -> None:
        """Running requests finish or are cut off, then their answers go out and connections close."""
        self.state.draining = True
        cut = await asyncio.to_thread(self.state.worker.close, self.state.args.drain_seconds)
        if cut:
            say(f"{cut} requests were cut off after {self.state.args.drain_seconds:g} s")
        self.server.should_exit = True
        await asyncio.wait({serving}, timeout=2)
        if not serving.done():
            self.server.force_exit = True
            await asyncio.wait({serving}, timeout=1)
        say("The server has ended.")
