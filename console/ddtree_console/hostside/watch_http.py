"""HTTP questions of the watcher: each in a thread of its own, answered through a pipe that the loop waits on."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from ddtree_console.hostside.roots import Roots

AT_ONCE = 8
READY_INTERVAL = 15.0


class HttpWorkers:
    """`ask` starts a question; `fileno` is readable when `take` has answers."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._done: deque[dict[str, Any]] = deque()
        self._running = 0
        self._lock = threading.Lock()
        self._reader, self._writer = os.pipe()

    def fileno(self) -> int:
        """What the loop waits on."""
        return self._reader

    def ask(self, question: Mapping[str, Any], tag: Mapping[str, Any]) -> None:
        """Starts it; its answer carries `tag`."""
        with self._lock:
            busy = self._running >= AT_ONCE
            self._running += 0 if busy else 1
        if busy:
            self._put({**tag, "status": None, "error": f"{AT_ONCE} questions are under way on this host"})
            return
        threading.Thread(target=self._work, args=(dict(question), dict(tag)), daemon=True).start()

    def take(self) -> list[dict[str, Any]]:
        """The answers so far."""
        os.read(self._reader, 4096)
        answers = []
        while self._done:
            answers.append(self._done.popleft())
        return answers

    def _put(self, answer: dict[str, Any]) -> None:
        self._done.append(answer)
        os.write(self._writer, b".")

    def _work(self, question: dict[str, Any], tag: dict[str, Any]) -> None:
        # Imported at the first question: most watchers never ask one, and the HTTP client is slow to load.
        from ddtree_console.hostside import http

        try:
            answer = http.answer(self._roots, question)
        except Exception as error:
            answer = {"status": None, "error": f"{type(error).__name__}: {error}"}
        with self._lock:
            self._running -= 1
        self._put({**tag, **answer})


class Prober:
    """Own probes of slots that ask for them: model info, often while starting, seldom when ready, never two at once."""

    def __init__(self, workers: HttpWorkers) -> None:
        self._workers = workers
        self._due: dict[str, float] = {}
        self._asked: set[str] = set()
        self._path: dict[str, int] = {}

    def tick(self, service: str, engine: str, port: int, address: str, pid: int, every: float) -> None:
        """Asks where it is time."""
        now = time.monotonic()
        if service in self._asked or now < self._due.get(service, 0.0):
            return
        from ddtree_console.domain.engines import registry

        requests = registry.get(engine).info_requests()
        if not requests:
            return
        request = requests[self._path.get(service, 0) % len(requests)]
        question = {
            "port": port,
            "address": address,
            "method": request.method,
            "path": request.path,
            "body": request.body,
            "timeout": 5.0,
            "pid": pid,
            "auth": True,
        }
        self._asked.add(service)
        self._due[service] = now + every
        self._workers.ask(question, {"service": service, "path": request.path, "via": "host"})

    def answered(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Notes when to ask again; the message to send."""
        service = str(answer["service"])
        self._asked.discard(service)
        if answer.get("status") == 200:
            self._due[service] = time.monotonic() + READY_INTERVAL
        elif answer.get("status") in (404, 500):
            self._path[service] = self._path.get(service, 0) + 1
        return {k: v for k, v in answer.items() if k not in ("body", "headers")}
