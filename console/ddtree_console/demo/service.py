"""The life of one service: start, readiness by type, main process, stop, ExecStopPost, restarts; as systemd 252."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
import uuid
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ddtree_console.demo import settings as settings_module
from ddtree_console.demo.child import Child
from ddtree_console.demo.notify import Readiness
from ddtree_console.demo.unit_processes import POLL, UnitProcesses
from ddtree_console.demo.unit_state import CLD_EXITED, Exit, restarts
from ddtree_console.demo.unitload import UnitText

if TYPE_CHECKING:
    from ddtree_console.demo.supervisor import Supervisor


class Service(UnitProcesses):
    """One loaded service and its jobs."""

    def __init__(self, machine: Supervisor, text: UnitText, transient: bool = False) -> None:
        super().__init__(machine, text, transient)
        self._starts: deque[float] = deque()
        self._life: asyncio.Task[None] | None = None
        self._started: asyncio.Future[str] | None = None
        self._stop = asyncio.Event()
        self._asked = 0

    # --- jobs

    @property
    def busy(self) -> bool:
        """A start was asked for, or something of it runs: systemd never forgets such a unit."""
        return self._asked > 0 or (self._life is not None and not self._life.done())

    async def _asked_start(self) -> str:
        """start(), busy from the moment of the call and not only once the task runs."""
        try:
            return await self.start()
        finally:
            self._asked -= 1

    def ask_start(self) -> Coroutine[Any, Any, str]:
        """A start job to be run as a task."""
        self._asked += 1
        return self._asked_start()

    async def start(self) -> str:
        """The start job's result: done | failed | canceled."""
        while self._life and not self._life.done():
            if self._stop.is_set():
                await asyncio.wait({self._life})
            elif self._started and not (self.active == "activating" and self._started.done()):
                return await asyncio.shield(self._started)
            else:
                await asyncio.sleep(POLL)
        self._stop.clear()
        self.restarts = 0
        self._started = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(), name=f"{self.machine.name}/{self.name}")
        return await asyncio.shield(self._started)

    async def stop(self) -> None:
        """Until it is down."""
        if not self._life or self._life.done():
            return
        self._stop.set()
        self._resolve("canceled")
        await asyncio.wait({self._life})

    async def finished(self) -> None:
        """Until it is down, without stopping it."""
        if self._life:
            await asyncio.wait({self._life})

    def reset_failed(self) -> None:
        """Clears failed and the start counter."""
        self._starts.clear()
        if self.active == "failed":
            self._set("inactive", "dead")
        self.result, self.restarts = "success", 0

    def abandon(self) -> None:
        """Power loss: nothing is told to anyone."""
        if self._life:
            self._life.cancel()
        for child in self._children:
            child.abandon()
        self._resolve("canceled")

    # --- life

    async def _live(self) -> None:
        try:
            await self._run()
        finally:
            # Whatever happens, nobody waits for ever on a start job.
            self._resolve("failed")

    async def _run(self) -> None:
        again = False
        while True:
            if again:
                self.restarts += 1
                self.log(f"Scheduled restart job, restart counter is at {self.restarts}.")
                self.machine.log(self, f"Stopped {self.title}.")
                self._started = asyncio.get_running_loop().create_future()
            if not self._may_start():
                self.log("Start request repeated too quickly.", 4)
                self._failed("start-limit-hit" if self.result == "success" else self.result)
                self.machine.log(self, f"Failed to start {self.title}.", 3)
                break
            again = await self._once()
            if not again:
                break
            self._set("activating", "auto-restart")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), self.config.restart_sec)
            if self._stop.is_set():
                self._set("inactive", "dead")
                self.machine.log(self, f"Stopped {self.title}.")
                break
        self._resolve("done" if self.active == "inactive" else "failed")
        self.machine.ended(self)

    def _may_start(self) -> bool:
        now = time.monotonic()
        while self._starts and now - self._starts[0] > self.config.limit_interval:
            self._starts.popleft()
        limited = self.config.limit_burst > 0 and self.config.limit_interval > 0
        if limited and len(self._starts) >= self.config.limit_burst:
            return False
        self._starts.append(now)
        return True

    async def _once(self) -> bool:
        """One activation, from new InvocationID to dead or failed. True when it is to be started again."""
        config = self.config
        self.invocation, self.result = uuid.uuid4().hex, "success"
        self.main, self.main_pid, self.exec_pid, self.exit, self.available = None, 0, 0, Exit(0, 0), None
        self.machine.tracker.open(self.name, self.invocation)
        self._set("activating", "start-pre" if config.start_pre else "start")
        if config.type == "oneshot" or config.start_pre:
            self.machine.log(self, f"Starting {self.title}...")
        for command in config.start_pre:
            await self._control(command, "ExecStartPre", config.timeout_start)
            if self.result != "success" or self._stop.is_set():
                break
        else:
            if config.type == "oneshot":
                await self._oneshot(config)
            else:
                await self._daemon(config)
        asked = self._stop.is_set()
        # A failed start job is told of once the unit is down.
        failed_start = self.active == "activating" and self.result != "success"
        await self._down()
        again = not asked and not self._stop.is_set() and self._restart_wanted()
        if self.result == "success":
            self.log("Deactivated successfully.")
            self._set("inactive", "dead")
        else:
            self._failed(self.result)
        if failed_start:
            self.machine.log(self, f"Failed to start {self.title}.", 3)
            self._resolve("failed")
        elif self._stop.is_set():
            self.machine.log(self, f"Stopped {self.title}.")
        return again

    def _restart_wanted(self) -> bool:
        end = self.exit
        names = {str(end.status)} if end.code <= CLD_EXITED else {signal.Signals(end.status).name}
        return not names & self.config.prevent and restarts(self.config.restart, self.result)

    async def _daemon(self, config: settings_module.Settings) -> None:
        if config.type not in ("simple", "exec", "notify"):
            self.log(f"Type={config.type} is run as simple by this sandbox.", 4)
        if config.type == "notify":
            child = await self._notified(config)
        else:
            child = self._spawn(config.start[0], {}, main=True)
        if child is None and config.type in ("exec", "notify"):
            return
        self._set("active", "running")
        self.machine.log(self, f"Started {self.title}.")
        self._resolve("done")
        if child is None:
            return
        for command in config.start_post:
            await self._control(command, "ExecStartPost", config.timeout_start)
        await self._until_ended_or_stopped(child)
        if child.ended.done():
            self._main_exited(child.ended.result())
            return
        self.machine.log(self, f"Stopping {self.title}...")
        self._set("deactivating", "stop")
        for command in config.stop:
            await self._control(command, "ExecStop", config.timeout_stop, {"MAINPID": str(child.pid)})

    async def _notified(self, config: settings_module.Settings) -> Child | None:
        """The main process once it has said READY=1; None when it ended, was too late, or is to be stopped before."""
        self.machine.log(self, f"Starting {self.title}...")
        readiness = Readiness()
        try:
            child = self._spawn(config.start[0], {"NOTIFY_SOCKET": readiness.address}, main=True)
            if child is None:
                return None
            stop, ready = (asyncio.ensure_future(event.wait()) for event in (self._stop, readiness.ready))
            waited: set[asyncio.Future[Any]] = {child.ended, stop, ready}
            limit = None if config.timeout_start == float("inf") else config.timeout_start
            await asyncio.wait(waited, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            ready.cancel()
        finally:
            readiness.close()
        if child.ended.done():
            self._main_exited(child.ended.result())
            self._note("protocol" if self.result == "success" else self.result)
            return None
        if readiness.ready.is_set():
            return child
        if not self._stop.is_set():
            self.log("start operation timed out. Terminating.", 4)
            self._note("timeout")
        return None

    async def _until_ended_or_stopped(self, child: Child, timeout: float = float("inf")) -> None:
        stop = asyncio.ensure_future(self._stop.wait())
        both: set[asyncio.Future[Any]] = {child.ended, stop}
        limit = None if timeout == float("inf") else timeout
        await asyncio.wait(both, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()

    async def _oneshot(self, config: settings_module.Settings) -> None:
        self._set("activating", "start")
        for command in config.start:
            child = self._spawn(command, {}, main=True)
            if child is None:
                return
            await self._until_ended_or_stopped(child, config.timeout_start)
            if not child.ended.done():
                if not self._stop.is_set():
                    self.log("start operation timed out. Terminating.", 4)
                    self._note("timeout")
                return
            self._main_exited(child.ended.result(), daemon=False, ignore=command.ignore)
            if self.result != "success":
                return
        self.machine.log(self, f"Finished {self.title}.")
        if config.remain:
            self._set("active", "exited")
            self._resolve("done")
            await self._stop.wait()

    async def _down(self) -> None:
        """Everything of the unit ends: processes, then ExecStopPost, then what that left."""
        await self._end_processes("stop")
        if self.config.stop_post:
            self._set("deactivating", "stop-post")
            env = {"SERVICE_RESULT": self.result, **(self.exit.env if self.exec_pid else {})}
            for command in self.config.stop_post:
                await self._control(command, "ExecStopPost", self.config.timeout_stop, env)
            await self._end_processes("final")
        for child in self._children:
            child.close()
        self._children.clear()
        self.main_pid = 0
        self.machine.tracker.close(self.name)

    def _resolve(self, result: str) -> None:
        if self._started and not self._started.done():
            self._started.set_result(result)
