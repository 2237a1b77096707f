"""Figures of the demo's story: from what happens on a host to what stands on the screen.

The hosts are the demo's sandbox, so the real journald's own 0.5 s from an entry to its follower is not in them.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.figures import CONSOLE, Figure
from tests.bench.pty_program import PtyProgram

SLOT = "ct129/sglang-qwen"
UNIT = "sglang-qwen.service"


@dataclass(frozen=True)
class Demo:
    """A demo without a screen. fleet: its fleet file; host: the root of ct129."""

    fleet: Path
    host: Path
    env: dict[str, str]

    def command(self, *words: str) -> str:
        """A command of ours against it; its stdout."""
        argv = [*CONSOLE, *words, "--fleet", str(self.fleet)]
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout

    def journal(self, since: float, *needles: str) -> float:
        """Wall time of the first entry after `since` that holds one of the needles."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            for line in self.command("logs", SLOT, "-n", "4000", "--json").splitlines():
                entry = json.loads(line)
                if entry["wall"] >= since and any(needle in entry["text"] for needle in needles):
                    return float(entry["wall"])
        raise TimeoutError(f"{needles} did not come")

    def event(self, kind: str, **wanted: str) -> float:
        """Wall time of that event in the newest transaction."""
        newest = max((self.host / "var" / UNIT / "events").glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
        for line in newest.read_text().splitlines():
            event = json.loads(line)
            if event["kind"] == kind and all(event.get(key) == value for key, value in wanted.items()):
                return float(event["wall"])
        raise LookupError(f"no {kind} {wanted} in {newest.name}")


@contextmanager
def _demo(speed: float) -> Iterator[Demo]:
    env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    argv = [*CONSOLE, "demo", "--headless", "--speed", str(speed)]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            fleet = Path(process.stdout.readline().strip())
            yield Demo(fleet, fleet.parent.parent / "ct129", env)
        finally:
            process.terminate()
            process.wait(30)


def _choose(program: PtyProgram) -> None:
    """The slot of ct129 is the only row, so that keys act on it."""
    program.wait_for(r"sglang-qwen\s+\S+ ready", 60)
    program.send("/")
    program.pump(0.5)
    program.send("qwen\r")
    program.pump(0.5)


def _seen(program: PtyProgram, pattern: str, since: int, timeout: float = 60.0) -> float:
    """Wall time at which it stood on the screen."""
    return program.wait_for(pattern, timeout, since) - time.monotonic() + time.time()


def story(speed: float = 20.0) -> list[Figure]:
    """A failing deployment, one that works, and a rollback, watched in one console."""
    with _demo(speed) as demo, PtyProgram([*CONSOLE, "--fleet", str(demo.fleet)], demo.env) as program:
        _choose(program)
        began = time.time()
        since = len(program.raw)
        demo.command("deploy", SLOT, "--profile", "ddtree-shadow", "--detach")
        program.wait_for(r"sglang-qwen\s+\S+ starting", 10, since)
        since = program.send("d")
        verdict = _seen(program, r"VERDICT", since)
        program.wait_for(r"serves now", 60, since)
        fatal = demo.journal(began, "Not enough memory")

        demo.command("deploy", SLOT, "--profile", "linear-wrapper", "--detach")
        since = len(program.raw)
        token = _seen(program, r"✓ first token", since)
        made = demo.event("rung", rung="token", state="ok")
        program.wait_for(r"serves now", 60, since)

        since = program.send("R")
        program.wait_for(r"ROLL BACK", 10, since)
        program.pump(1.0)
        acted = time.time()
        program.send("R")
        program.wait_for(r"serves now", 60, len(program.raw))
        stopped = demo.journal(acted, "Stopping ")
    return [
        Figure("fatal line in the journal to the verdict on screen", verdict - fatal, 1.0, "s"),
        Figure("first token to its ✓ on screen", token - made, 0.5, "s"),
        Figure("R, countdown over, to the stop on the host", stopped - acted, 0.3, "s"),
    ]
