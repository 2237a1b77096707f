"""The live console of a command: fleet file, connections, who acts; and running a use case while hosts are followed."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import socket
from collections.abc import Callable, Collection, Coroutine
from dataclasses import replace
from typing import Any

from ddtree_console.cli.demo import reached
from ddtree_console.domain.spec import Fleet
from ddtree_console.services.console import LiveConsole
from ddtree_console.services.errors import HostError, NoFleet
from ddtree_console.services.plans import Operator

CANCEL_AGAIN = 3.0
"""Seconds; closing connections takes up to one each."""

Work = Callable[[LiveConsole], Coroutine[Any, Any, int]]


def operator() -> Operator:
    """user@machine, and where the terminal comes from."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    here = socket.gethostname()
    client = os.environ.get("SSH_CONNECTION", "").split(" ")[0]
    return Operator(f"{user}@{here}", f"{client or here} pid {os.getpid()}")


def load_fleet(explicit: str | None) -> Fleet:
    """The fleet of --fleet, $DDTREE_FLEET, ./profiles or the user's folder; NoFleet, ConfigError."""
    from ddtree_console.config import load

    found = load.find_fleet(explicit)
    if found is None:
        raise NoFleet(load.searched())
    return reached(load.load_fleet(found))


def build(fleet: Fleet, read_only: bool) -> LiveConsole:
    """A console of that fleet; imports what connections need."""
    from pathlib import Path

    from ddtree_console.config.rules import load_rules
    from ddtree_console.config.store import ProfileStore
    from ddtree_console.transport.bootstrap import launcher
    from ddtree_console.transport.opener import opener

    store = ProfileStore(Path(fleet.path).parent)
    own, problems = own_rules()
    fleet = replace(fleet, warnings=(*fleet.warnings, *problems))
    return LiveConsole(fleet, store, opener(fleet), launcher(load_rules), operator(), read_only=read_only, rules=own)


def own_rules() -> tuple[list[dict[str, Any]], list[str]]:
    """The operator's own rules of findings, from `rules/` in the user's config folder, and what is wrong with others:
    a rule that cannot be used is left out, since it may not stand in a rollback's way."""
    from ddtree_console.config import load, rules

    folder = load.places(None, {**os.environ, "DDTREE_FLEET": ""})[-1].parent / "rules"
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    for path in rules.files(folder):
        found, document = rules.check(path)
        rows += found
        problems += [str(problem) for problem in document.problems]
    return rows, problems


def only(fleet: Fleet, scope: str | None) -> Fleet:
    """The fleet with the asked host only (all without one); HostError(2) names those that exist."""
    if not scope:
        return fleet
    name, _, service = scope.partition("/")
    hosts = tuple(h for h in fleet.hosts if h.name == name)
    if not hosts:
        known = ", ".join(h.name for h in fleet.hosts) or "none"
        raise HostError(name, "find the host", f"{name} is not in {fleet.path}", f"hosts: {known}", 2)
    if service and service not in [s.name for s in hosts[0].services]:
        known = ", ".join(s.key for s in hosts[0].services) or "none"
        raise HostError(scope, "find the service", f"{scope} is not in {fleet.path}", f"services: {known}", 2)
    return replace(fleet, hosts=hosts)


def asked(console: LiveConsole, scope: str | None) -> list[str]:
    """Keys of the services in that scope."""
    keys = [s.key for h in console.fleet.hosts for s in h.services]
    return [k for k in keys if scope in (None, k, k.partition("/")[0])]


async def _end(*tasks: asyncio.Future[Any]) -> None:
    """Cancels until all have ended: up to Python 3.11 a library's wait_for can lose a cancellation."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN)
    await asyncio.gather(*tasks, return_exceptions=True)  # what one of them raised was told, or is of no use now


async def _with(console: LiveConsole, work: Work) -> int:
    follow, job = asyncio.ensure_future(console.run()), asyncio.ensure_future(work(console))
    try:
        await asyncio.wait((follow, job), return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            follow.result()
        return await job
    finally:
        await _end(job, follow)


def with_hosts(args: argparse.Namespace, fleet: Fleet, names: Collection[str], work: Work) -> int:
    """Follows those hosts of the fleet, runs `work`; its exit code."""
    some = replace(fleet, hosts=tuple(h for h in fleet.hosts if h.name in names))
    return asyncio.run(_with(build(some, args.read_only), work))


def with_console(args: argparse.Namespace, scope: str | None, work: Work) -> int:
    """Loads the fleet, follows the asked host, runs `work`; its exit code."""
    fleet = only(load_fleet(args.fleet), scope)
    return asyncio.run(_with(build(fleet, args.read_only), work))
