"""Short commands of the host code over a link: one question, one answer, errors that name the next step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from ddtree_console.services.errors import HostError
from ddtree_console.services.link import HostLink
from ddtree_console.services.session import parse_object
from ddtree_console.transport.base import Process, Transport, TransportError

AT_ONCE = 2
CHANGING = frozenset({"submit", "request", "adopt", "accept-drift", "carry", "gpu_check"})


class Commands:
    """The host code's short commands on one host."""

    def __init__(self, link: HostLink) -> None:
        self._link, self.name = link, link.host.name
        # sshd may allow four sessions only: watcher, journal, and these.
        self._slots = asyncio.Semaphore(AT_ONCE)

    def _guard(self, command: str) -> None:
        if command in CHANGING and not self._link.state.privileged:
            cause = self._link.state.error or "read-only on this host"
            raise HostError(self.name, command, cause, "allow `sudo -n` for this user, then retry", 7)

    async def lines(self, command: str, payload: Mapping[str, Any], timeout: float = 30.0) -> list[dict[str, Any]]:
        """All JSON lines of the answer; HostError for a refusal or a lost connection."""
        transport, launcher = await self._link.ready(command)
        self._guard(command)
        stdin = json.dumps(payload).encode() + b"\n"
        while True:
            try:
                async with self._slots:
                    done = await transport.run(launcher.argv(command), stdin, timeout)
                if done.status is None:
                    raise HostError(self.name, command, "connection lost before it ended", "try again", 5)
                answers = [x for line in done.stdout.splitlines() if (x := parse_object(line)) is not None]
                if answers or done.status == 0:
                    return [checked(self.name, command, x) for x in answers]
                await launcher.repair(transport, done.status, done.stderr)
            except (TransportError, TimeoutError) as error:
                raise as_host_error(self.name, command, error) from error

    async def raw(self, command: str, payload: Mapping[str, Any], timeout: float = 30.0) -> list[bytes]:
        """The answer's lines as bytes (journal entries); HostError for a lost connection."""
        transport, launcher = await self._link.ready(command)
        try:
            async with self._slots:
                done = await transport.run(launcher.argv(command), json.dumps(payload).encode() + b"\n", timeout)
        except (TransportError, TimeoutError) as error:
            raise as_host_error(self.name, command, error) from error
        if done.status is None:
            raise HostError(self.name, command, "connection lost before it ended", "try again", 5)
        lines = done.stdout.splitlines()
        if done.status and lines and (refusal := parse_object(lines[-1])) is not None:
            checked(self.name, command, refusal)
        return lines

    async def call(self, command: str, payload: Mapping[str, Any], timeout: float = 30.0) -> dict[str, Any]:
        """The one answer; HostError for a refusal or a lost connection."""
        answers = await self.lines(command, payload, timeout)
        if not answers:
            raise HostError(self.name, command, "the host gave no answer", "try again, then see `check`", 5)
        return answers[-1]

    async def stream(self, command: str, payload: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The answer's lines as they come, to the command's end; HostError as `lines`. Leaving it ends the command."""
        transport, launcher = await self._link.ready(command)
        self._guard(command)
        async with self._slots:
            try:
                process = await transport.start(launcher.argv(command))
                try:
                    await process.send(json.dumps(payload).encode())
                    async for line in process.lines():
                        if (answer := parse_object(line)) is not None:
                            yield checked(self.name, command, answer)
                    status, _ = await process.wait()
                finally:
                    await process.close()
            except TransportError as error:
                raise as_host_error(self.name, command, error) from error
            if status is None:
                raise HostError(self.name, command, "connection lost before it ended", "try again", 5)

    async def arm(self, command: str, *, urgent: bool = False) -> Armed:
        """Starts a command that waits for its stdin, so that only the payload has to travel when it matters.

        It counts as a short command until it is fired or closed; urgent: it waits for no other one.
        """
        transport, launcher = await self._link.ready(command)
        self._guard(command)
        if not urgent:
            await self._slots.acquire()
        done = _nothing if urgent else self._slots.release
        try:
            return Armed(self.name, command, transport, await transport.start(launcher.argv(command)), done)
        except BaseException as error:
            done()
            if isinstance(error, TransportError):
                raise as_host_error(self.name, command, error) from error
            raise


class Armed:
    """A started command that reads its payload from one line of stdin."""

    def __init__(
        self, host: str, command: str, transport: Transport, process: Process, done: Callable[[], None]
    ) -> None:
        self._host, self._command, self._transport, self._process = host, command, transport, process
        self._done: Callable[[], None] | None = done

    @property
    def usable(self) -> bool:
        """Whether its connection is still there."""
        return self._done is not None and not self._transport.closed.is_set()

    async def fire(self, payload: Mapping[str, Any], timeout: float = 30.0) -> dict[str, Any]:
        """Its answer; HostError as `Commands.call`."""
        try:
            async with asyncio.timeout(timeout):
                await self._process.send(json.dumps(payload).encode())
                await self._process.end()
                async for line in self._process.lines():
                    if (answer := parse_object(line)) is not None:
                        return checked(self._host, self._command, answer)
        except (TransportError, TimeoutError) as error:
            raise as_host_error(self._host, self._command, error) from error
        finally:
            await self.close()
        raise HostError(self._host, self._command, "the host gave no answer", "try again", 5)

    async def close(self) -> None:
        """Ends it; once fired that changes nothing."""
        done, self._done = self._done, None
        if done is not None:
            done()
        await self._process.close()


def _nothing() -> None:
    """What an urgent command has to give back."""


def as_host_error(host: str, action: str, error: BaseException) -> HostError:
    """A transport's error as the API's."""
    if isinstance(error, TransportError):
        return HostError(error.host, error.action, error.cause, error.next_step, 5)
    return HostError(host, action, "no answer in time", "try again", 5)


class Refused(HostError):
    """The host's own refusal. holder_tx: id of the transaction that holds the lock, '' for any other reason."""

    def __init__(self, host: str, action: str, answer: Mapping[str, Any]) -> None:
        code, cause = answer.get("code"), str(answer.get("cause") or "refused")
        step = str(answer.get("next") or "see `check`")
        super().__init__(host, action, cause, step, code if isinstance(code, int) else 7)
        holder = answer.get("holder")
        self.holder_tx = str(holder.get("tx") or "") if isinstance(holder, dict) and self.code == 6 else ""


def checked(host: str, action: str, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer; Refused where it is a refusal."""
    if answer.get("ok") is False:
        raise Refused(host, action, answer)
    return answer
