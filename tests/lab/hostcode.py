"""The host code on a host, driven through the back door: tests of the transaction need no console and no connection."""

from __future__ import annotations

import contextlib
import functools
import json
import shlex
import subprocess
import time
from collections.abc import Callable
from typing import Any

from ddtree_console.config.rules import load_rules
from ddtree_console.domain import events, txview
from ddtree_console.domain.plan import Plan
from ddtree_console.transport import archive
from tests.lab.host import Host

VAR = "/var/lib/ddtree-console"


@functools.cache
def host_code() -> archive.Archive:
    """The archive of the tree as it is now."""
    return archive.build(load_rules())


class HostCode:
    """Host code installed on one host, and what it keeps there."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.folder = f"{VAR}/bin/{host_code().hash}"
        for name, data in host_code().files.items():
            host.write(f"{self.folder}/{name}", data)

    def ask(self, command: str, question: dict[str, Any] | None = None, timeout: float = 30.0) -> dict[str, Any]:
        """One command's JSON answer. RuntimeError has what it wrote instead of one."""
        line = f"python3 -I -B {self.folder} {shlex.quote(command)}"
        done = self.host.exec(line, check=False, stdin=json.dumps(question or {}), timeout=timeout)
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            raise RuntimeError(f"{command}: status {done.returncode}\n{done.stdout}\n{done.stderr}") from None
        return answer

    def submit(self, plan: Plan) -> str:
        """Starts the transaction and returns its id; RuntimeError when the host refuses."""
        answer = self.ask("submit", plan.to_json())
        if not answer.get("ok"):
            raise RuntimeError(f"refused: {answer}")
        return str(answer["tx"])

    def events(self, unit: str, tx: str) -> list[events.Event]:
        """All events so far; none while the host is off."""
        with contextlib.suppress(OSError):
            lines = self.host.path(f"{VAR}/{unit}/events/{tx}.jsonl").read_text("utf-8", "replace").splitlines()
            return [event for event in map(events.parse, lines) if event is not None]
        return []

    def view(self, unit: str, tx: str) -> txview.TxView | None:
        """The transaction as its events tell it now."""
        return txview.fold_all(self.events(unit, tx))

    def wait(
        self, unit: str, tx: str, until: Callable[[txview.TxView], Any] = lambda view: view.outcome, timeout: float = 60
    ) -> txview.TxView:
        """The view as soon as `until` holds of it; TimeoutError has the events and the host's journal."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            view = self.view(unit, tx)
            if view is not None and until(view):
                return view
            time.sleep(0.05)
        told = "\n".join(event.line() for event in self.events(unit, tx))
        raise TimeoutError(f"{unit} {tx}: not within {timeout} s\n{told}\n{self.host.journal(60)}")

    def watch(self, unit: str, until: Callable[[dict[str, Any]], Any], timeout: float = 20.0) -> dict[str, Any]:
        """A watcher of that unit runs until it says something of which `until` holds; that message."""
        slot = {"service": "qwen", "unit": unit, "port": 30000, "gpus": [], "engine": "sglang", "probe": False}
        config = json.dumps({"v": 1, "services": [slot], "unit_interval": 0.3}) + "\n"
        line = f"python3 -I -B {self.folder} watch"
        said: list[str] = []
        with subprocess.Popen(
            ["nsenter", "-t", str(self.host.pid), "-a", "timeout", f"{timeout:g}", "sh", "-c", line],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as watcher:
            stdin, stdout = watcher.stdin, watcher.stdout
            assert stdin is not None
            assert stdout is not None
            stdin.write(config)
            stdin.flush()
            for text in stdout:
                said.append(text)
                message: dict[str, Any] = json.loads(text)
                if until(message):
                    stdin.close()
                    return message
        raise TimeoutError(f"the watcher did not say it within {timeout} s:\n{''.join(said)[-4000:]}")

    def state(self, unit: str) -> dict[str, Any]:
        """state.json: what is committed and known good."""
        state: dict[str, Any] = json.loads(self.host.path(f"{VAR}/{unit}/state.json").read_text())
        return state

    def history(self, unit: str) -> list[dict[str, Any]]:
        """history.jsonl, oldest first."""
        with contextlib.suppress(FileNotFoundError):
            lines = self.host.path(f"{VAR}/{unit}/history.jsonl").read_text().splitlines()
            return [json.loads(line) for line in lines]
        return []

    def trial(self, unit: str) -> bool:
        """Whether a trial lies in /run."""
        return self.host.path(f"/run/systemd/system.control/{unit}").exists()
