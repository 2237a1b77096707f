"""The processes of a unit: Exec lines are started, awaited, ended; all of a unit's processes go with it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from ddtree_console.demo import settings as settings_module
from ddtree_console.demo.child import Child
from ddtree_console.demo.settings import Command
from ddtree_console.demo.unit import Unit
from ddtree_console.demo.unit_state import CLD_EXITED, Exit
from ddtree_console.demo.unitload import expand

POLL = 0.02


class UnitProcesses(Unit):
    """Starting and ending what a unit runs."""

    async def _end_processes(self, phase: str) -> None:
        mode, main = self.config.kill_mode, self.main_pid
        if mode == "none" or not self.machine.tracker.pids(self.name):
            self._collect_main()
            return
        self._set("deactivating", f"{phase}-sigterm")
        number = int(getattr(signal, self.config.kill_signal, signal.SIGTERM))
        self.machine.tracker.kill(self.name, number, main if mode in ("process", "mixed") else 0)
        if await self._emptied(self.config.timeout_stop, main if mode == "process" else 0):
            return
        self.log(f"State '{phase}-sigterm' timed out. Killing.", 4)
        self._note("timeout")
        self._set("deactivating", f"{phase}-sigkill")
        for pid in self.machine.tracker.kill(self.name, signal.SIGKILL):
            self.log(f"Killing process {pid} with signal SIGKILL.", 5)
        await self._emptied(self.config.timeout_stop, 0)

    async def _emptied(self, timeout: float, only: int) -> bool:
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            self._collect_main()
            left = self.machine.tracker.pids(self.name)
            if not (only in left if only else left) and (self.main is None or self.main.ended.done()):
                self._collect_main()
                return True
            await asyncio.sleep(POLL)
        return False

    def _collect_main(self) -> None:
        if self.main and self.main_pid and self.main.ended.done():
            self._main_exited(self.main.ended.result())

    # --- processes

    def _spawn(self, command: Command, extra: Mapping[str, str], *, main: bool = False) -> Child | None:
        """Starts one Exec line. None when that failed: state and journal then say so as for status 200, 203."""
        status, cause = 203, ""
        argv = list(command.argv)
        child = None
        try:
            env = settings_module.environment(self.config, self._base_env(extra), self.machine.bin_folder)
            argv = argv if command.plain else expand(argv, env)
            argv[0] = self.machine.program(argv[0])
            cwd = self.config.workdir
            if cwd and not Path(cwd).is_dir():
                if not self.config.workdir_optional:
                    status, cause = 200, f"Changing to the requested working directory failed: {cwd}"
                    raise NotADirectoryError(20, "No such file or directory", cwd)
                cwd = ""
            child = Child(argv, env, cwd, self._emit)
        except OSError as error:
            step = "CHDIR" if status == 200 else "EXEC"
            self.log(cause or f"Failed to locate executable {argv[0]}: {error.strerror}", 3)
            self.log(f"Failed at step {step} spawning {argv[0]}: {error.strerror}", 3)
            self._ended_badly(Exit(CLD_EXITED, status), main, command.ignore)
            return None
        self._children.append(child)
        self.names[child.pid] = argv[0].rpartition("/")[2]
        self.machine.tracker.add(self.name, child.pid)
        if self.config.oom_score_adj is not None:
            # Below 0 only root may; the demo then runs without, as it has no memory to defend.
            with contextlib.suppress(OSError):
                Path(f"/proc/{child.pid}/oom_score_adj").write_text(str(self.config.oom_score_adj))
        if main:
            self.main, self.main_pid, self.exec_pid = child, child.pid, child.pid
            self.stamps.main_start, self.stamps.main_exit = time.time(), 0.0
        return child

    def _ended_badly(self, end: Exit, main: bool, ignore: bool) -> None:
        if main:
            self.exec_pid = -1
            self._main_exited(end, ignore=ignore)
        else:
            self.log(f"Control process exited, {end.words}", 5)
            self._note("success" if ignore else "exit-code")

    def _base_env(self, extra: Mapping[str, str]) -> dict[str, str]:
        env = {**self.machine.base_env, "INVOCATION_ID": self.invocation, "JOURNAL_STREAM": "0:0", **extra}
        if self.main_pid:
            env.setdefault("MAINPID", str(self.main_pid))
        return env

    async def _control(
        self, command: Command, what: str, timeout: float, extra: Mapping[str, str] | None = None
    ) -> None:
        """Runs one of the other Exec lines to its end or its timeout."""
        child = self._spawn(command, extra or {})
        if child is None:
            return
        done, _ = await asyncio.wait({child.ended}, timeout=None if timeout == float("inf") else timeout)
        if not done:
            self.log(f"{what} operation timed out. Terminating.", 4)
            self._note("timeout")
            child.kill()
            await child.ended
            return
        end = child.ended.result()
        result = end.result(self.config.success)
        if result != "success":
            self.log(f"Control process exited, {end.words}", 5)
            self._note("success" if command.ignore else result)

    def _main_exited(self, end: Exit, daemon: bool = True, ignore: bool = False) -> None:
        self.exit, self.main_pid, self.stamps.main_exit = end, 0, time.time()
        self.drain()
        result = end.result(self.config.success, daemon)
        if result != "success":
            self.log(f"Main process exited, {end.words}", 5)
        self._note("success" if ignore else result)

    def _emit(self, pid: int, line: bytes, line_break: str) -> None:
        self.machine.output(self, pid, line, line_break)


def signal_number(name: str) -> int:
    """9, KILL or SIGKILL; ValueError for anything else."""
    if name.isdigit():
        return int(signal.Signals(int(name)))
    full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    try:
        return int(signal.Signals[full])
    except KeyError:
        raise ValueError(f"Failed to parse signal string {name}.") from None
