"""Asking a service over HTTP: through the connection, or by the host's watcher (forwarding forbidden, a key set)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from ddtree_console.domain.engines.base import Request
from ddtree_console.services.channel import OpenTcp, client
from ddtree_console.services.errors import HostError
from ddtree_console.transport.base import TransportError


@dataclass(frozen=True)
class Answer:
    """status None: no answer, `error` says why. seconds: it took. kind: 'no-forwarding' for a forbidden channel."""

    status: int | None = None
    text: str = ""
    seconds: float = 0.0
    error: str = ""
    kind: str = ""

    def json(self) -> Any:
        """The body as JSON, None where it is none."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None


@dataclass(frozen=True)
class Target:
    """Where a service listens. pid: its main process, whose key the host reads."""

    port: int
    address: str = "127.0.0.1"
    pid: int = 0


class Asker(Protocol):
    """One way to ask. via: channel | host."""

    via: str

    async def ask(self, target: Target, request: Request, timeout: float) -> Answer:
        """Never raises but for cancellation."""
        ...


def dialled(address: str) -> str:
    """The address to dial for a listener's: a wildcard means loopback."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "*": "127.0.0.1", "::": "::1", "[::]": "::1"}.get(address, address)


class ChannelAsker:
    """Through direct-tcpip channels of the SSH connection."""

    via = "channel"

    def __init__(self, open_tcp: OpenTcp) -> None:
        self._client = client(open_tcp)

    async def ask(self, target: Target, request: Request, timeout: float) -> Answer:
        """As Asker.ask."""
        host = f"[{target.address}]" if ":" in target.address else target.address
        began = time.perf_counter()
        try:
            async with asyncio.timeout(timeout):
                reply = await self._client.request(
                    request.method,
                    f"http://{host}:{target.port}{request.path}",
                    json=dict(request.body) if request.body is not None else None,
                    timeout=timeout,
                )
        except TransportError as error:
            kind = error.kind if error.kind == "no-forwarding" else ""
            return Answer(error=error.cause, kind=kind, seconds=time.perf_counter() - began)
        except (httpx.HTTPError, TimeoutError) as error:
            slow = isinstance(error, (TimeoutError, httpx.TimeoutException))
            why = f"no answer in {timeout:.0f} s" if slow else str(error) or type(error).__name__
            return Answer(error=why, seconds=time.perf_counter() - began)
        text = reply.content.decode("utf-8", "replace")
        return Answer(reply.status_code, text, time.perf_counter() - began)

    async def close(self) -> None:
        """Ends idle streams."""
        await self._client.aclose()


class HostAsker:
    """By the watcher, on the host: the key is read there and stays there."""

    via = "host"

    def __init__(self, send: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._next = 0

    def answered(self, message: Mapping[str, Any]) -> bool:
        """Takes a watcher's `http` message that answers one of ours; False for any other."""
        waiting = self._waiting.pop(message["id"], None) if isinstance(message.get("id"), int) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(message)
        return waiting is not None

    async def ask(self, target: Target, request: Request, timeout: float) -> Answer:
        """As Asker.ask."""
        self._next += 1
        number, began = self._next, time.perf_counter()
        future: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        question = {
            "cmd": "http",
            "id": number,
            "port": target.port,
            "address": target.address,
            "method": request.method,
            "path": request.path,
            "body": dict(request.body) if request.body is not None else None,
            "timeout": timeout,
            "pid": target.pid,
            "auth": True,
        }
        try:
            await self._send(question)
            async with asyncio.timeout(timeout + 5):
                raw = await future
        except HostError as error:
            return Answer(error=error.cause, seconds=time.perf_counter() - began)
        except TimeoutError:
            return Answer(error="the host's watcher did not answer", seconds=time.perf_counter() - began)
        finally:
            self._waiting.pop(number, None)
        status, body = raw.get("status"), raw.get("body")
        text = body if isinstance(body, str) else json.dumps(body) if body is not None else ""
        seconds = raw.get("seconds")
        return Answer(
            status if isinstance(status, int) else None,
            text,
            float(seconds) if isinstance(seconds, (int, float)) else 0.0,
            str(raw.get("error") or ""),
        )
