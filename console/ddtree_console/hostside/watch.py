"""The watcher: one loop that reports what changed on this host until its stdin ends."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ddtree_console.domain.snapshot import GpuReport, UnitState
from ddtree_console.hostside import hello, locks, procfs, releases, watch_calm, watch_units
from ddtree_console.hostside.gpus import GpuReader
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.watch_config import Config, config
from ddtree_console.hostside.watch_http import HttpWorkers, Prober
from ddtree_console.hostside.watch_io import Requests, Sender
from ddtree_console.hostside.watch_kernel import KernelWatch
from ddtree_console.hostside.watch_ports import PortWatch
from ddtree_console.hostside.watch_ranks import RankWatch
from ddtree_console.hostside.watch_tx import HeldOutcomes, Signature, TxFollower, release_paths, signature
from ddtree_console.hostside.watch_units import UnitReader

# How often event files are looked at, in seconds: while a transaction runs, and otherwise.
TX_RUNNING, TX_IDLE = 0.1, 0.25
REPEAT = 10.0
# nvidia-smi costs a second of CPU a call on a big host.
SMI_INTERVAL = 5.0


class Watch:
    """State of the loop. Every part fails alone: its error is reported and the others go on."""

    def __init__(self, roots: Roots, out: Sender, requests: Requests) -> None:
        self._roots, self._out, self._requests = roots, out, requests
        self._config = Config()
        self._units = UnitReader()
        self._states: dict[str, UnitState] = {}
        self._calm: watch_calm.Look | None = None
        self._ask_units_by = 0.0
        self._ports = PortWatch(roots)
        self._ranks = RankWatch(roots)
        self._kernel = KernelWatch()
        self._gpus = GpuReader(roots)
        self._gpu_every = 0.0
        self._http = HttpWorkers(roots)
        self._prober = Prober(self._http)
        self._followers: dict[str, TxFollower] = {}
        self._outcomes = HeldOutcomes()
        self._kept: dict[str, Any] = {}
        self._kept_paths: dict[str, list[Path]] = {}
        self._kept_seen: dict[str, Signature] = {}
        self._selector = selectors.DefaultSelector()
        self._registered: dict[str, int] = {}
        self._next = {"units": 0.0, "gpus": 0.0, "tx": 0.0, "slow": 0.0, "repeat": time.monotonic() + REPEAT}

    def run(self) -> None:
        """Until stdin ends. BrokenPipeError when nobody reads any more."""
        self._selector.register(self._requests.fd, selectors.EVENT_READ, self._take_requests)
        self._selector.register(self._http.fileno(), selectors.EVENT_READ, self._take_http)
        self._out.send("hello", hello.facts(self._roots))
        try:
            while not self._requests.ended:
                self._tick()
                for key, _ in self._selector.select(max(0.0, self._wait())):
                    key.data()
        finally:
            self._units.close()
            self._gpus.close()
            self._kernel.close()

    def _wait(self) -> float:
        now = time.monotonic()
        due = [*self._next.values(), now + self._out.beat_in()]
        due += [x for x in (self._units.due, self._gpus.due) if x is not None]
        return min(due) - now

    def _due(self, name: str, every: float) -> bool:
        now = time.monotonic()
        if now < self._next[name]:
            return False
        self._next[name] = now + every
        return True

    def _tick(self) -> None:
        now = time.monotonic()
        if self._units.due is not None and now >= self._units.due:
            self._follow("units", -1)
            self._units.overdue()
            self._out.error("units", self._units.problem)
            self._send_events(self._outcomes.all())
        if self._gpus.due is not None and now >= self._gpus.due:
            self._follow("gpus", -1)
            self._report_gpus(self._gpus.overdue())
        if self._due("units", self._config.unit_interval) and self._units.due is None and self._config.slots:
            self._ask_units()
        if self._due("gpus", max(self._config.gpu_interval, self._gpu_every)) and self._gpus.due is None:
            report = self._gpus.ask()
            self._follow("gpus", self._gpus.fileno())
            if report is not None:
                self._report_gpus(report)
        if self._due("tx", TX_RUNNING if any(f.running for f in self._followers.values()) else TX_IDLE):
            self._part("events", self._report_events)
        if self._due("slow", self._config.unit_interval) and self._config.slots:
            self._part("locks", self._report_locks)
            self._part("releases", self._report_releases)
            self._part("ranks", self._report_ranks)
            if any(slot.gpus for slot in self._config.slots) and self._kernel.start():
                self._follow("kernel", self._kernel.fileno())
        if self._due("repeat", REPEAT) and self._states:
            self._report_units(force=True)
        self._out.beat(procfs.boottime())

    def _ask_units(self) -> None:
        """systemctl where something may have changed, else only a look at the ports."""
        now, calm = time.monotonic(), watch_calm.look(self._roots, self._states)
        if now < self._ask_units_by and calm == self._calm and watch_calm.settled(self._states):
            self._part("ports", self._report_ports)
            return
        self._calm, self._ask_units_by = calm, now + watch_calm.ASK_ANYWAY
        self._units.ask(self._config.units)
        self._outcomes.asked += 1
        self._out.error("units", self._units.problem)
        self._follow("units", self._units.fileno())

    def _part(self, part: str, report: Callable[[], None]) -> None:
        """Runs one part. What a host's files hold must never end the watcher; what its stdout does, must."""
        try:
            report()
        except BrokenPipeError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._out.error(part, f"{type(error).__name__}: {error}")
        else:
            self._out.error(part, "")

    def _follow(self, name: str, fd: int) -> None:
        """Registers a child's pipe in the place of its last one; -1 only forgets that one."""
        old = self._registered.pop(name, None)
        if old is not None:
            self._selector.unregister(old)
        if fd >= 0:
            takers = {"units": self._take_units, "gpus": self._take_gpus, "kernel": self._take_kernel}
            self._selector.register(fd, selectors.EVENT_READ, takers[name])
            self._registered[name] = fd

    def _take_requests(self) -> None:
        for raw in self._requests.take():
            if raw.get("cmd") == "http":
                self._http.ask(raw, {"id": raw.get("id")})
            elif raw.get("cmd", "config") == "config":
                self._configure(config(raw))

    def _configure(self, new: Config) -> None:
        self._config = new
        self._followers = {unit: self._followers.get(unit) or TxFollower(self._roots, unit) for unit in new.units}
        self._states = {unit: state for unit, state in self._states.items() if unit in new.units}
        self._kept_paths = {unit: release_paths(self._roots, unit) for unit in new.units}
        self._kept_seen.clear()
        self._kept.clear()
        self._ask_units_by = 0.0
        self._next.update(units=0.0, tx=0.0, slow=0.0, gpus=0.0)
        # Before the states are asked for, so that the first of them is as new as what is found here.
        self._part("events", self._report_events)

    def _take_units(self) -> None:
        try:
            # The descriptor is closed at its end, and must be forgotten before that.
            states = self._units.take()
        finally:
            if self._units.due is None:
                self._follow_closed("units")
        if states is not None:
            self._states = states
            self._out.error("units", "")
            # What a transaction does to a unit goes before the new state, or a stop would look like a failure;
            # its outcome after a state as new as itself, or a service that is back would.
            self._part("events", self._report_events)
            self._send_events(self._outcomes.ended())
            self._report_units()
            self._send_events(self._outcomes.answered())
            self._part("ports", self._report_ports)
            # Only here, where systemd has just answered: it asks systemd, and waits for it.
            self._part("cut attempts", self._close_cut)
        elif self._units.problem:
            self._out.error("units", self._units.problem)
            self._send_events(self._outcomes.all())

    def _follow_closed(self, name: str) -> None:
        fd = self._registered.pop(name, None)
        if fd is not None:
            self._selector.unregister(fd)

    def _report_units(self, force: bool = False) -> None:
        message = watch_units.payload(self._states)
        if self._out.changed("units", message, watch_units.key(message), force):
            self._next["repeat"] = time.monotonic() + REPEAT

    def _report_ports(self) -> None:
        found = self._ports.look(self._config.slots, self._states)
        self._out.changed("ports", {"ports": {service: asdict(listener) for service, listener in found.items()}})
        for slot in self._config.slots:
            unit, listener = self._states.get(slot.unit), found[slot.service]
            if slot.probe and unit is not None and unit.main_pid and listener.state != "nobody":
                every, pid = self._config.http_interval, unit.main_pid
                self._prober.tick(slot.service, slot.engine, slot.port, listener.address, pid, every)

    def _take_gpus(self) -> None:
        report = self._gpus.take()
        if self._gpus.fileno() < 0:
            self._follow_closed("gpus")
        if report is not None:
            self._report_gpus(report)

    def _report_gpus(self, report: GpuReport) -> None:
        self._gpu_every = SMI_INTERVAL if report.source == "nvidia-smi" and self._roots.nvml else 0.0
        self._out.changed("gpus", asdict(report))

    def _report_events(self) -> None:
        for unit, follower in self._followers.items():
            first, events = not follower.looked, list(follower.poll())
            if not (first and self._outcomes.holds_all(unit, events)):
                self._send_events((unit, event) for event in events if not self._outcomes.holds(unit, event))
        if self._outcomes.waiting:
            self._ask_units_by = self._next["units"] = 0.0

    def _send_events(self, events: Iterable[tuple[str, dict[str, Any]]]) -> None:
        for unit, event in events:
            self._out.send("tx", {"unit": unit, "event": event})

    def _report_locks(self) -> None:
        held = {name: _lock(holder) for name, holder in locks.holders(self._roots).items()}
        for unit in self._config.units:
            held.setdefault(unit, None)
        self._out.changed("locks", {"locks": held})

    def _close_cut(self) -> None:
        """Closes an attempt that seems to run while nobody holds its lock: a reboot has ended it."""
        units = [unit for unit, f in self._followers.items() if f.running and locks.holder(self._roots, unit) is None]
        if units and (os.geteuid() == 0 or self._roots.path):
            from ddtree_console.hostside import tx_end  # seldom needed, and it loads much of the transaction

            tx_end.close_cut(self._roots, units)

    def _report_releases(self) -> None:
        for unit in self._config.units:
            seen = signature(self._kept_paths[unit])
            if seen != self._kept_seen.get(unit):
                self._kept[unit] = asdict(releases.state(self._roots, unit))
                self._kept_seen[unit] = seen
        self._out.changed("releases", {"releases": dict(self._kept)})

    def _report_ranks(self) -> None:
        self._out.changed("ranks", {"ranks": self._ranks.look(self._config.slots, self._states)})

    def _take_kernel(self) -> None:
        new = self._kernel.take()
        if self._kernel.fileno() < 0:
            self._follow_closed("kernel")
        if new:
            self._out.changed("xid", {"xid": list(self._kernel.seen)})

    def _take_http(self) -> None:
        for answer in self._http.take():
            self._out.send("http", self._prober.answered(answer) if "service" in answer else answer)


def _lock(holder: Mapping[str, Any] | None) -> dict[str, str] | None:
    if holder is None:
        return None
    return {**{k: str(holder.get(k) or "") for k in ("who", "from", "why", "tx")}, "since": locks.since(holder)}


def main(roots: Roots, args: list[str]) -> int:
    """Ends with 0 when the console goes."""
    Watch(roots, Sender(), Requests()).run()
    return 0
