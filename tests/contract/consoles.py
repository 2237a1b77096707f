"""A live console over one host whose profiles replay recordings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ddtree_console.config.rules import load_rules
from ddtree_console.domain.events import Event
from ddtree_console.domain.snapshot import HostSnapshot, ServiceSnapshot
from ddtree_console.domain.spec import Fleet, Host, Profile, Service
from ddtree_console.services.console import LiveConsole
from ddtree_console.services.plans import Operator
from ddtree_console.transport.bootstrap import launcher
from ddtree_console.transport.opener import opener
from tests.contract.real import RealHost
from tests.lab.slot import MODEL

UNIT = "sglang-qwen.service"


@dataclass(frozen=True)
class Profiles:
    """services.console.Store without a disk."""

    known: Mapping[str, Profile]

    def profiles(self) -> Mapping[str, Profile]:
        return self.known

    def save(self, base: str, name: str, profile: Profile) -> object:
        raise NotImplementedError(name)  # no contract test saves a profile: one that does must fail here


def profile(python: str, replayer: str, recording: str, speed: float, name: str = "") -> Profile:
    """A profile whose server is that recording."""
    command = (python, "-B", replayer, "--recording", recording, "--speed", f"{speed:g}")
    return Profile(name or recording, engine="sglang", model=MODEL, command=command)


async def fleet_of(host: RealHost, **service: Any) -> Fleet:
    """That host with the slot `qwen`; profiles: quick, healthy, slow, and every failing recording by its name."""
    python, replayer = (await host.exec("command -v python3")).strip(), host.replayer()
    known = [
        profile(python, replayer, "dflash-healthy-bars", 200, "quick"),
        profile(python, replayer, "dflash-healthy-bars", 30, "healthy"),
        profile(python, replayer, "dflash-healthy-bars", 5, "slow"),
        profile(python, replayer, "memory-pool-too-small", 40),
        profile(python, replayer, "unknown-flag", 40),
    ]
    settings = {"profile": "quick", "hold_s": 0.5, "deadline_s": 60.0, **service}
    slot = Service(host.spec.name, "qwen", UNIT, host.port, **settings)
    spec = replace(host.spec, services=(slot,))
    return Fleet(path="fleet.yaml", hosts=(spec,), profiles={p.name: p for p in known})


class Screen:
    """What somebody at a console sees and does; key is the one service's."""

    def __init__(self, console: LiveConsole) -> None:
        self.console = console
        self.key = f"{console.fleet.hosts[0].name}/qwen"

    def host(self) -> HostSnapshot:
        """The host as it is shown."""
        return self.console.snapshot().hosts[0]

    def service(self) -> ServiceSnapshot:
        """The service as it is shown."""
        found = self.console.snapshot().service(self.key)
        assert found is not None
        return found

    async def until(self, holds: Callable[[HostSnapshot], Any], timeout: float = 30.0) -> HostSnapshot:
        """The host as soon as `holds` is true of it."""
        snapshot = self.console.snapshot()
        try:
            async with asyncio.timeout(timeout):
                while not holds(snapshot.hosts[0]):
                    snapshot = await self.console.changed(snapshot.serial)
        except TimeoutError:
            raise AssertionError(f"not within {timeout} s: {self.host()}") from None
        return snapshot.hosts[0]

    async def up(self) -> HostSnapshot:
        """Connected, with a first state of the service."""
        return await self.until(lambda host: host.link == "up" and host.services and host.services[0].unit)

    async def deploy(self, name: str, **more: Any) -> str:
        """Starts a deployment; the transaction's id."""
        return (await self.console.deploy(self.key, name, **more)).tx

    async def outcome(self, tx: str, timeout: float = 60.0) -> Event:
        """The last event of a transaction, across reconnects."""
        last: Event | None = None
        async with asyncio.timeout(timeout):
            async for event in self.console.follow(self.key, tx):
                last = event
        assert last is not None
        assert last.kind == "outcome"
        return last

    async def waiting(self) -> None:
        """A running transaction has started the unit."""

        def waits(host: HostSnapshot) -> bool:
            tx = host.services[0].tx
            return bool(tx and tx.running and tx.attempt and any(step.name == "wait" for step in tx.attempt.steps))

        await self.until(waits)


@contextlib.asynccontextmanager
async def screen(
    fleet: Fleet, who: str = "tester", open_host: Any = None, rules: Sequence[Mapping[str, Any]] = ()
) -> AsyncIterator[Screen]:
    """A console that follows its hosts until the end of the block."""
    console = LiveConsole(
        fleet,
        Profiles(fleet.profiles),
        open_host or opener(fleet),
        launcher(load_rules),
        Operator(who, "contract"),
        rules=rules,
    )
    running = asyncio.create_task(console.run())
    try:
        yield Screen(console)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def as_user(fleet: Fleet, user: str) -> Fleet:
    """The same hosts, logged in to as that user."""
    return replace(fleet, hosts=tuple(replace(host, user=user) for host in fleet.hosts))


HostOpener = Callable[[Host], Any]
