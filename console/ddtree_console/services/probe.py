"""What to ask one service and when: gently, since a server under load answers probes with the same few threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ddtree_console.domain.engines import ddtree_info
from ddtree_console.domain.engines.base import Engine, Figures, Request
from ddtree_console.domain.secrets import mask_data
from ddtree_console.domain.snapshot import HttpState
from ddtree_console.services.ask import Answer, Asker, Target

STARTING, READY, FIGURES = 2.0, 15.0, 5.0
"""Seconds between questions: model info while starting and when ready, metrics when ready."""
QUICK, SLOW, TOKEN = 5.0, 10.0, 60.0
"""Seconds to wait for model info and metrics, server info, a token."""
STUCK_AFTER = 30.0
"""Seconds without any movement in the figures, while requests wait, before /health is asked once."""
HEALTH_PATIENCE = 20.0
ALIVE, ALIVE_AGAIN, DEAF = 60.0, 15.0, 2
"""Seconds between questions to a scheduler that is idle, after one without an answer, and how many of those count."""
METRICS, HEALTH = Request("GET", "/metrics"), Request("GET", "/health")
GIVE_UP = (404, 405, 500, 501)


@dataclass
class Memory:
    """What is known of one invocation; a new process starts a new one."""

    invocation: str = ""
    refused: set[str] = field(default_factory=set)
    info: Mapping[str, Any] = field(default_factory=dict)
    info_asked: bool = False
    token_asked: bool = False
    due: dict[str, float] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)
    moved_at: float = 0.0
    health_asked: bool = False
    hung: str = ""
    alive: Request | None = None
    """what the scheduler itself answered before."""
    silent: int = 0
    deaf: str = ""


def model_name(info: Any) -> str:
    """The model that an answer names, in SGLang's form or in OpenAI's; '' where it names none."""
    if not isinstance(info, dict):
        return ""
    listed = info.get("data")
    first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    return str(info.get("served_model_name") or info.get("model_path") or first.get("id") or "")


class Probe:
    """One service's questions. `log`: figures of the newest decode line, None where there is none."""

    def __init__(self, engine: Engine, clock: Callable[[], float], log: Callable[[], Figures | None]) -> None:
        self._engine, self._clock, self._log = engine, clock, log
        self._memory = Memory()
        self.state = HttpState()
        self.wants_host = False
        """True once the channel was forbidden or a key was asked for: the host has to ask."""

    def begin(self, invocation: str) -> None:
        """Forgets what an earlier process said."""
        if invocation != self._memory.invocation:
            self._memory = Memory(invocation=invocation, moved_at=self._clock())
            self.state = HttpState()

    def _due(self, what: str, every: float) -> bool:
        now = self._clock()
        if now < self._memory.due.get(what, 0.0):
            return False
        self._memory.due[what] = now + every
        return True

    async def step(self, asker: Asker, target: Target, proven: bool) -> HttpState:
        """Asks what is due now, one question at a time. proven: a transaction saw a token of this invocation."""
        memory = self._memory
        served = self.state.status == 200
        if self._due("info", READY if served else STARTING):
            await self._ask_info(asker, target)
            if self.state.status != 200 and not served:
                return self.state
        if served or self.state.status == 200:
            if not memory.info_asked:
                memory.info_asked = True
                await self._ask_server_info(asker, target)
            if not proven and not memory.token_asked:
                memory.token_asked = True
                await self._ask_token(asker, target)
            if self._due("figures", FIGURES):
                await self._ask_figures(asker, target)
            await self._look_for_a_hang(asker, target)
            await self._look_alive(asker, target)
        return self.state

    async def _ask(self, asker: Asker, target: Target, request: Request, timeout: float) -> Answer:
        answer = await asker.ask(target, request, timeout)
        if answer.status in GIVE_UP:
            self._memory.refused.add(request.path)
        if asker.via == "channel" and (answer.kind == "no-forwarding" or answer.status == 401):
            self.wants_host = True
            self._memory.due.clear()
        return answer

    async def _ask_info(self, asker: Asker, target: Target) -> None:
        memory = self._memory
        requests = [r for r in self._engine.info_requests() if r.path not in memory.refused]
        if not requests:
            return
        answer, request = Answer(), requests[0]
        for request in requests:
            answer = await self._ask(asker, target, request, QUICK)
            if answer.status != 404:
                break
        name = model_name(answer.json())
        self.state = replace(
            self.state,
            path=request.path,
            status=answer.status,
            error=answer.error or memory.hung or memory.deaf,
            seconds=answer.seconds,
            via=asker.via,
            served_model=name or self.state.served_model,
        )

    async def _ask_server_info(self, asker: Asker, target: Target, figures: bool = True) -> None:
        """figures: they come from there too."""
        for request in self._engine.server_info_requests():
            if request.path in self._memory.refused:
                continue
            answer = await self._ask(asker, target, request, SLOW)
            raw = answer.json()
            if answer.status == 200 and isinstance(raw, dict):
                self._memory.info = raw = mask_data(raw)
                if self._memory.alive is None:
                    self._memory.alive = request
                    self._memory.due["alive"] = self._clock() + ALIVE
                self.state = replace(self.state, info=raw)
                if figures:
                    self._set(self._engine.figures_of_info(raw), "server_info")
                return
            if answer.status is None:
                # It can hang on a hung scheduler: not again in this invocation.
                self._memory.refused.add(request.path)
                return

    async def _ask_token(self, asker: Asker, target: Target) -> None:
        """One token, once an invocation: an adopted service has no ladder that proved it."""
        for request in self._engine.token_requests(self._memory.info):
            answer = await self._ask(asker, target, request, TOKEN)
            if answer.status == 200 and self._engine.token_made(answer.json()):
                self.state = replace(self.state, token=self._memory.invocation)
                return
            if answer.status not in (404, 400, 405, 422):
                return

    async def _ask_figures(self, asker: Asker, target: Target) -> None:
        """Metrics, then server info, then the log; the state names which."""
        if METRICS.path not in self._memory.refused:
            answer = await self._ask(asker, target, METRICS, QUICK)
            if answer.status == 200:
                figures = self._engine.figures(answer.text)
                if figures != Figures():
                    self._set(figures, "metrics")
                    if ddtree_info.read(self._memory.info) is not None and self._due("server_info", READY):
                        # no metric tells what the tree would have saved
                        await self._ask_server_info(asker, target, figures=False)
                    return
                self._memory.refused.add(METRICS.path)
        if self._due("server_info", READY):
            await self._ask_server_info(asker, target)
        if self.state.source != "server_info" and (figures_of_log := self._log()) is not None:
            self._set(figures_of_log, "log")

    def _set(self, figures: Figures, source: str) -> None:
        if figures == Figures():
            return
        if figures != self._memory.figures:
            self._memory.figures, self._memory.moved_at = figures, self._clock()
        self.state = replace(
            self.state,
            running=figures.running,
            waiting=figures.waiting,
            tok_s=figures.tok_s,
            accept_len=figures.accept_len,
            source=source,
        )

    async def _look_for_a_hang(self, asker: Asker, target: Target) -> None:
        """One /health while requests wait and nothing moves; it runs a real request, so never two at once."""
        memory, now = self._memory, self._clock()
        if not (self.state.waiting or 0) or now - memory.moved_at < STUCK_AFTER:
            memory.health_asked = False
            if memory.hung:
                memory.hung, self.state = "", replace(self.state, error="")
            return
        if memory.health_asked:
            return
        memory.health_asked = True
        answer = await self._ask(asker, target, HEALTH, HEALTH_PATIENCE)
        if answer.status == 200:
            memory.moved_at, memory.health_asked = self._clock(), False
            return
        why = answer.error or f"/health answered {answer.status}"
        stuck = self._clock() - memory.moved_at
        memory.hung = f"hung: nothing moved for {stuck:.0f} s while {self.state.waiting} requests wait; {why}"
        self.state = replace(self.state, path=HEALTH.path, status=answer.status, error=memory.hung)

    async def _look_alive(self, asker: Asker, target: Target) -> None:
        """A scheduler that hangs while nobody asks shows in nothing else: server info asks it, /health runs a request.

        Only one that answered before is judged, twice in a row, and not while any figure moves (a long prefill).
        """
        memory, request = self._memory, self._memory.alive
        if request is None or memory.hung or self.state.status != 200 or not self._due("alive", ALIVE):
            return
        answer = await self._ask(asker, target, request, SLOW)
        memory.silent = memory.silent + 1 if answer.status is None else 0
        if memory.silent:
            memory.due["alive"] = self._clock() + ALIVE_AGAIN
        elif memory.deaf:
            memory.deaf, self.state = "", replace(self.state, error="")
        if memory.silent < DEAF or memory.deaf or self._clock() - memory.moved_at < STUCK_AFTER:
            return
        health = await self._ask(asker, target, HEALTH, HEALTH_PATIENCE)
        if health.status not in (None, 503):
            memory.silent = 0
            return
        said = health.error or f"answered {health.status}"
        memory.deaf = f"hung: its scheduler is silent ({request.path}: {answer.error}; /health: {said})"
        self.state = replace(self.state, error=memory.deaf)
