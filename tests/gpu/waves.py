"""Many servers started together and used together: by name, each with its ports, retried once when memory was short."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gpu.servers import SGLANG, Ended, Server

COMMON = (
    "--skip-tokenizer-init --attention-backend triton --sampling-backend pytorch --grammar-backend none "
    "--context-length 2048 --max-running-requests 8 --enable-metrics --disable-overlap-schedule "
    "--disable-piecewise-cuda-graph --cuda-graph-bs 1 2 4 8 --sleep-on-idle"
)
"""of every server. Idle schedulers sleep, so that one server can be timed while others wait."""
MEMORY = "--mem-fraction-static 0.5 --max-total-tokens 20000"
"""SGLang counts the fraction against what was free when the server came, less what others took meanwhile: so half of
the GPU as an upper bound, and the true size in tokens."""
OUT_OF_MEMORY = ("out of memory", "Not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")
STAGGER = 1.2
"""seconds between two launches of a wave: the first compiles what the others find in the cache."""
FIRST_PORT, STEP = 31000, 20


class Clock:
    """The plan's time. until: of time.monotonic()."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds

    def left(self, most: float = float("inf")) -> float:
        """Seconds left, at most that many."""
        return max(0.0, min(most, self.until - time.monotonic()))


@dataclass(frozen=True)
class Wanted:
    """A server to be started: its kind is the name's first word (ar, dflash, tree-N, shadow-N)."""

    name: str
    flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Fleet:
    """All servers of a run. where: their logs. plugin: the folder that goes first on PYTHONPATH."""

    where: Path
    pair: Path
    plugin: Path
    clock: Clock
    more: Sequence[str] = ()
    launcher: Sequence[str] = SGLANG
    stagger: float = STAGGER
    servers: dict[str, Server] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    over: bool = False

    def __post_init__(self) -> None:
        self._ports = iter(range(FIRST_PORT, 65000, STEP))
        self._lock = threading.Lock()
        self._waiting: dict[str, threading.Thread] = {}

    def launch(self, wanted: Wanted) -> Server:
        """One server, not yet ready. Ended where the run is over."""
        kind, _, rest = wanted.name.partition("-")
        spec: list[str] = []
        if kind != "ar":
            spec = ["--speculative-algorithm", "DFLASH" if kind == "dflash" else "DDTREE",
                    "--speculative-draft-model-path", str(self.pair / "draft")]  # fmt: skip
        path = os.pathsep.join(p for p in (str(self.plugin), os.environ.get("PYTHONPATH", "")) if p)
        env = {"PYTHONPATH": path, **wanted.env}
        if kind in ("tree", "shadow"):
            env = {"DDTREE_MODE": kind, "DDTREE_BUDGET": rest.partition("-")[0], **env}
        with self._lock:
            if self.over:
                raise Ended(f"{wanted.name} was not started: no time left")
            port = next(self._ports)
            # SGLang picks a free port for its processes too, and two that start at once may pick the same
            words = ["--model-path", str(self.pair / "target"), *COMMON.split(), *MEMORY.split(), *self.more,
                     "--nccl-port", str(port + STEP // 2), *spec, *wanted.flags]  # fmt: skip
            server = Server(wanted.name, self.where, port, words, env, self.launcher)
            self.servers[wanted.name] = server
        return server

    def begin(self, wave: Sequence[Wanted], patience: float) -> None:
        """Starts them one shortly after the other, and returns at once; `settle` waits for them."""

        def start(number: int, wanted: Wanted) -> None:
            time.sleep(self.clock.left(number * self.stagger))
            try:
                self._ready(wanted, patience)
            except Ended as error:
                self.errors[wanted.name] = str(error)

        for number, wanted in enumerate(wave):
            thread = threading.Thread(target=start, args=(number, wanted), daemon=True)
            thread.start()
            self._waiting[wanted.name] = thread

    def _ready(self, wanted: Wanted, patience: float) -> None:
        for attempt in (1, 2):
            server = self.launch(wanted)
            try:
                server.ready(self.clock.left(patience))
                return
            except Ended:
                if attempt == 2 or not any(text in server.log for text in OUT_OF_MEMORY):
                    raise
            server.stop(0)
            (server.out / f"{wanted.name}.log").rename(server.out / f"{wanted.name}-no-memory.log")

    def settle(self, names: Sequence[str] | None = None) -> None:
        """Waits until these servers, or all of every wave begun, are ready or have failed."""
        for name in list(self._waiting) if names is None else names:
            if name in self._waiting:
                self._waiting[name].join(self.clock.left())

    def get(self, name: str) -> Server:
        """A server that is ready; Ended with what stopped it."""
        server = self.servers.get(name)
        if server is None or not server.is_ready:
            raise Ended(self.errors.get(name) or f"{name} is not running")
        return server

    def ready(self) -> list[str]:
        """Names of those that are ready."""
        return [name for name, server in self.servers.items() if server.is_ready]

    def stop(self, names: Sequence[str] | None = None, patience: float = 4.0) -> None:
        """Ends them, all at once."""
        chosen = [s for n, s in list(self.servers.items()) if names is None or n in names]
        if chosen:
            with ThreadPoolExecutor(len(chosen)) as pool:
                list(pool.map(lambda s: s.stop(patience), chosen))

    def cut(self) -> None:
        """The time is over: nothing is started any more, and whatever waits for a server gets an error."""
        self.clock.until = time.monotonic()
        with self._lock:
            self.over = True
        self.stop(patience=1.0)


def at_once(names: Sequence[str], one: Callable[[str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What `one` found for each name, all at the same time; {"ok": False, "error": ..} where it raised Ended."""

    def guarded(name: str) -> dict[str, Any]:
        try:
            return one(name)
        except (Ended, ValueError, KeyError, TypeError) as error:
            return {"ok": False, "error": f"{type(error).__name__}: {error}"}

    with ThreadPoolExecutor(max(1, len(names))) as pool:
        return dict(zip(names, pool.map(guarded, names), strict=True))
