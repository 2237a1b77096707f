"""The decoding thread and its queue: first come, first served, one at a time, and every request gets its end."""

from __future__ import annotations

import threading
import time
from collections import deque

from ddtree_kernels.decode.engine import Counts, Engine
from ddtree_kernels.decode.job import Job, Part, abort
from ddtree_kernels.decode.meter import Meter

CANCELLED = "the client went away"


class QueueFull(RuntimeError):
    """No room for one more waiting request; one line."""


class Closed(RuntimeError):
    """No request is taken any more; one line."""


class Worker:
    """Owns an engine. submit and cancel may be called from any thread."""

    def __init__(
        self, engine: Engine, *, most_waiting: int | None = None, meter: Meter | None = None, seed: int = 0
    ) -> None:
        """most_waiting: None = no limit. seed: of the first request that names none; each later one gets the next."""
        self.engine, self.most_waiting = engine, most_waiting
        self.counts = Counts()
        self.meter = meter or Meter(lambda line: None)
        self.fault = ""
        """Why nothing can be decoded any more."""
        self.progressed = time.monotonic()
        self._seed = seed - 1
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._change = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._loop, name="decode", daemon=True)

    def start(self) -> None:
        """Begins to decode."""
        self._thread.start()

    @property
    def running(self) -> int:
        """Requests being decoded: 0 or 1."""
        job = self._running
        return int(job is not None and job.ended is None)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    def submit(self, job: Job) -> None:
        """Takes a request. PromptError, QueueFull or Closed; then it was never taken and its give is not called."""
        self.engine.check(job.prompt)
        with self._change:
            if self.fault:
                raise Closed(f"decoding has failed: {self.fault}")
            if self._closing:
                raise Closed("the server is shutting down")
            if self.most_waiting is not None and self._running is not None and self.waiting >= self.most_waiting:
                raise QueueFull(f"the request queue is full: {self.waiting} wait already")
            self._waiting.append(job)
            self._change.notify_all()

    def cancel(self, job: Job, why: str = CANCELLED) -> None:
        """Ends a request: at once where it waits, after the current round where it runs, never twice."""
        with self._change:
            job.cancelled = why
            if job not in self._waiting:
                return
            self._waiting.remove(job)
        self._end(job, abort(why))

    def close(self, seconds: float) -> int:
        """Takes nothing new, lets what is there finish for at most `seconds`, cuts off the rest; how many were cut."""
        until = time.monotonic() + seconds
        with self._change:
            self._closing = True
            self._change.notify_all()
            self._change.wait_for(lambda: not self._waiting and self._running is None, timeout=max(0.0, seconds))
            left = [*self._waiting, *([self._running] if self._running else [])]
        for job in left:
            self.cancel(job, "the server is shutting down")
        if self._thread.is_alive():
            self._thread.join(max(1.0, until - time.monotonic()))
        return len(left)

    def _loop(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    return
                job = self._running = self._waiting.popleft()
                self._seed += 1
            try:
                end, text = self._decode(job)
            except Exception as error:  # whatever a request brings about, it gets its end and the next one its turn
                end, text = abort(f"decoding failed: {type(error).__name__}: {_line(error)}"), ""
                self._note(error)
            self._end(job, end, text)
            with self._change:
                self._running = None
                self._change.notify_all()

    def _note(self, error: Exception) -> None:
        """After a CUDA error the context is lost: nothing can be decoded in this process any more."""
        if "CUDA" not in str(error) or "out of memory" in str(error):
            return
        with self._change:
            self.fault, left = _line(error), list(self._waiting)
            self._waiting.clear()
        for job in left:
            self._end(job, abort(f"decoding has failed: {self.fault}"))

    def _decode(self, job: Job) -> tuple[dict[str, object], str]:
        """Its end, and the text that goes with it."""
        sampling = job.sampling
        job.started = time.monotonic()
        self.meter.idle()
        seed = self._seed if sampling.seed is None else sampling.seed
        stops = self.engine.stop_ids(sampling)
        steps = self.engine.generate(job.prompt, sampling, seed, job.counts)
        before = Counts()
        try:
            for new in steps:
                self.progressed = time.monotonic()
                if job.cancelled:
                    return abort(job.cancelled), ""
                end = self._take(job, new, stops)
                self._count(job.counts, before, len(new))
                if end is not None:
                    return end, ""
        finally:
            steps.close()
        return job.full(), job.text.finish()

    def _take(self, job: Job, new: list[int], stops: frozenset[int]) -> dict[str, object] | None:
        """Gives out the new tokens up to an end."""
        text, end, used = "", None, 0
        for token in new:
            more, end = job.token(token, stops)
            text, used = text + more, used + 1
            if end is not None:
                break
        if used:
            job.first = job.first or time.monotonic()
            self._give(job, Part(tuple(new[:used]), text))
        return end

    def _count(self, now: Counts, before: Counts, tokens: int) -> None:
        """Adds what is new of a request to the server's figures."""
        total = self.counts
        for name in ("rounds", "committed", "would", "longer", "contradictions"):
            change = getattr(now, name) - getattr(before, name)
            setattr(total, name, getattr(total, name) + change)
            setattr(before, name, getattr(now, name))
        self.meter.step(tokens, total, running=self.running, waiting=self.waiting)

    def _end(self, job: Job, end: dict[str, object], text: str = "") -> None:
        job.ended = time.monotonic()
        self._give(job, Part((), text, end))

    @staticmethod
    def _give(job: Job, part: Part) -> None:
        try:
            job.give(part)
        except Exception:  # its event loop is gone, or it cannot take it: nobody listens, and the others go on
            job.cancelled = CANCELLED


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]
