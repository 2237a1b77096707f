"""The GPU plan of the DDTREE plug-in, in one command, on a host with one free GPU and stock SGLang 0.5.12:

    PYTHONPATH=SITE python3 tests/gpu/plugin_plan.py OUT [--deadline 480] [--pair DIR] [--steps smoke]

SITE is SGLang's own environment (nothing for an installed one). The plug-in is unpacked beside the logs and put first
on the servers' PYTHONPATH, as the console does. OUT gets result.json, report.txt and plugin.tar.gz (logs, recordings),
written again after every step, so that whatever ends the run leaves what was found. Exit 0 when every step passed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.gpu import keep, speed, steps  # noqa: E402
from tests.gpu.servers import SGLANG, Ended  # noqa: E402
from tests.gpu.waves import STAGGER, Clock, Fleet, Wanted  # noqa: E402

PATIENCE = 170.0
"""seconds that a server may take to start beside eight others."""
LAST = 14.0
"""seconds kept back before the deadline to end the servers and write."""
Step = Callable[[steps.Run, dict[str, Any]], None]


def started(run: steps.Run, found: dict[str, Any]) -> None:
    """Every server of the waves begun so far, with its seconds or what stopped it."""
    run.fleet.settle()
    for name, server in list(run.fleet.servers.items()):
        found[name] = server.record["ready"] if server.is_ready else run.fleet.errors.get(name, "not ready")
    found["ok"] = all(server.is_ready for server in run.fleet.servers.values()) and not run.fleet.errors


STEPS: Mapping[str, Step] = {
    "table": steps.table,
    "start": started,
    "tokens": steps.tokens,
    "speed": speed.speed,
    "control": steps.control,
    "samples": steps.samples,
    "leak": steps.leak,
    "refusals": steps.refusals,
}
"""by value: what comes first is had even when time runs out."""
SMOKE: Mapping[str, Step] = {
    "table": steps.table,
    "start": started,
    "smoke": steps.smoke,
    "quick": speed.quick,
}
SECOND = ("refusals", "leak")


class Plan:
    """One run. results: step -> what it found; a step that fails does not stop the others."""

    def __init__(self, out: Path, work: Path, run: steps.Run) -> None:
        self.out, self.work, self.run = out, work, run
        self.results: dict[str, dict[str, Any]] = {}
        self.notes: list[str] = []
        self.second_begun = False

    def go(self, chosen: Sequence[str], smoke: bool) -> None:
        """Starts the servers that the steps need, runs the steps, ends all servers whatever happens."""
        fleet = self.run.fleet
        guard = threading.Timer(fleet.clock.left(), fleet.cut)
        guard.daemon = True
        guard.start()
        try:
            if smoke:
                fleet.begin([Wanted("dflash"), Wanted("tree-31")], PATIENCE)
            elif any(name not in (*SECOND, "table") for name in chosen):
                few = all(name in (*SECOND, "table", "samples") for name in chosen)
                fleet.begin([w for w in steps.first_wave() if not few or w.name in steps.LATER[:2]], PATIENCE)
                if few:
                    fleet.settle()
            for name in chosen:
                if not smoke and (name in SECOND or self.results.get("speed")):
                    self.second(chosen)
                self.step(name, (SMOKE if smoke else STEPS)[name])
        finally:
            guard.cancel()
            fleet.stop()
            self.save()

    def second(self, chosen: Sequence[str]) -> None:
        """Begins the second wave, once: behind the timed step, in whose place nothing else may run. Servers that no
        later step asks are ended first, for their memory."""
        if not self.second_begun and any(name in SECOND for name in chosen):
            self.second_begun = True
            self.run.fleet.stop([name for name in steps.FIRST if name not in steps.LATER])
            self.run.fleet.begin(steps.second_wave(), PATIENCE)

    def step(self, name: str, do: Step) -> None:
        """Runs one step within the time left, and keeps what it found."""
        began, found = time.monotonic(), self.results.setdefault(name, {"ok": False})
        try:
            if not self.run.fleet.clock.left():
                raise Ended("no time left")
            do(self.run, found)
        except Exception as error:  # one step must not stop the others
            found.update(ok=False, error=f"{type(error).__name__}: {error}")
        found["seconds"] = round(time.monotonic() - began, 1)
        print(f"{'ok  ' if found['ok'] else 'FAIL'} {name}  {found['seconds']} s", flush=True)
        self.save()

    def save(self) -> None:
        """All that is known so far."""
        fleet = self.run.fleet
        site = os.environ.get("PYTHONPATH", "").partition(os.pathsep)[0]
        names = {str(fleet.plugin): "/opt/ddtree-console/plugin", str(fleet.pair): "/models/tiny-pair"}
        keep.save(self.out, self.work, self.results, {**names, **({site: "/opt/sglang"} if site else {})}, self.notes)


def carry(where: Path) -> Path:
    """The plug-in with its dist-info, as the console puts it on a host."""
    sys.path.insert(0, str(ROOT / "console"))
    from ddtree_console.transport.carried import plugin

    for name, data in plugin().files.items():
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return where


def prompts(pair: Path) -> tuple[list[list[int]], list[list[int]]]:
    """Token ids of held-back prompts of the tiny pair's text, families in turn, every second row chats: two of each
    family with the one that it was not trained on; the decode bench's four of each that it was."""
    from ddtree_kernels.models.tokenizer import load_tokenizer
    from ddtree_kernels.tiny.prompts import UNTRAINED, prompt_set

    tokenizer = load_tokenizer(pair / "target")

    def in_turn(by_family: Mapping[str, Sequence[str]]) -> list[list[int]]:
        return [tokenizer.encode(text) for row in zip(*by_family.values(), strict=True) for text in row]

    trained = {family: texts for family, texts in prompt_set(4).items() if family != UNTRAINED}
    return in_turn(prompt_set(2)), in_turn(trained)


def main(argv: Sequence[str], launcher: Sequence[str] = SGLANG, stagger: float = STAGGER) -> int:
    """0 when all asked steps passed."""
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", default=",".join(STEPS), help="smoke, or names out of: " + ", ".join(STEPS))
    parser.add_argument("--pair", type=Path, default=ROOT / "kernels/ddtree_kernels/tiny/pair")
    parser.add_argument(
        "--deadline", type=float, default=480.0, help="seconds after which everything is ended and kept"
    )
    parser.add_argument("--flags", default="", help="more flags of every server, as one text")
    args = parser.parse_args(argv)
    smoke = args.steps == "smoke"
    chosen = list(SMOKE) if smoke else args.steps.split(",")
    unknown = [name for name in chosen if name not in (SMOKE if smoke else STEPS)]
    if unknown:
        parser.error(f"no step {unknown[0]}; steps are smoke, {', '.join(STEPS)}")
    work = Path(tempfile.mkdtemp(prefix="plugin-plan-"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(work / "triton"))
    clock = Clock(max(1.0, args.deadline - LAST - (time.monotonic() - began)))
    pair = args.pair.resolve()
    fleet = Fleet(work / "logs", pair, carry(work / "plugin"), clock, args.flags.split(), launcher, stagger)
    plan = Plan(args.out.resolve(), work / "logs", steps.Run(fleet, *prompts(pair)))
    # a limit from outside: what was found is still written
    before = signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=fleet.cut, daemon=True).start())
    try:
        plan.go(chosen, smoke)
    finally:
        signal.signal(signal.SIGTERM, before)
    print((plan.out / "report.txt").read_text("utf-8"), flush=True)
    return 0 if all(row["ok"] for row in plan.results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
