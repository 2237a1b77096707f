"""`gpu-check`: whether Triton, DDTree's kernels and CUDA graphs work on a GPU of a host; 0 yes, 7 no or refused."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ddtree_console.cli import live
from ddtree_console.cli.output import Output, safe
from ddtree_console.services import gpu_check
from ddtree_console.services.console import LiveConsole
from ddtree_console.services.errors import HostError

MARKS = {"ok": ("✓", "good"), "fail": ("✖", "bad"), "skip": ("○", "dim")}


def show(row: Mapping[str, Any], output: Output) -> None:
    """One row as a line or two."""
    if "stage" in row:
        mark, colour = MARKS.get(str(row.get("state")), ("?", "dim"))
        took = f" ({row['seconds']:.1f} s)" if isinstance(row.get("seconds"), float) and row["seconds"] else ""
        output.line(output.paint(safe(f"{mark} {row['stage']}: {row.get('evidence', '')}{took}"), colour))
        if row.get("remedy"):
            output.line(safe(f"    {row['remedy']}"))
    elif "verdict" in row and isinstance(row["verdict"], dict):
        for line in row["verdict"].get("start") or ():
            output.line(safe(f"start: {line}"))


def ended(row: Mapping[str, Any]) -> str:
    """What went wrong with the check itself, '' for nothing."""
    why, left, tail = (str(row.get(k) or "") for k in ("why", "left", "tail"))
    status = row.get("status")
    odd = f"the check ended with {status}: {tail}" if status not in (0, 1) and not why else ""
    return "; ".join(x for x in (why, odd, left and f"left behind: {left}") if x)


def main(args: argparse.Namespace, output: Output) -> int:
    """The exit code."""
    from ddtree_console.transport.carried import NotInstalled, kernels

    async def work(console: LiveConsole) -> int:
        host = console.fleet.host(args.host)
        try:
            archive = kernels()
        except NotInstalled as error:
            raise HostError(host.name, "gpu-check", str(error), "install ddtree-console whole", 2) from error
        gpu, service, profile = gpu_check.choose(host, await console.profiles(), args.gpu, args.service)
        ask = gpu_check.Ask(gpu, service, profile, args.memory_mb, args.limit)
        if console.read_only:
            raise HostError(host.name, "gpu-check", "this console is read-only", "start it without --read-only", 7)
        output.note(f"{host.name}: GPU {gpu}, with the interpreter of {service.key}: {gpu_check.WARNING}")
        rows: list[dict[str, Any]] = []
        commands = console.monitor.hosts[host.name].commands
        async for row in gpu_check.run(commands, host, ask, archive, live.operator()):
            rows.append(row)
            if not output.as_json:
                show(row, output)
        end = next((r["ended"] for r in rows if isinstance(r.get("ended"), dict)), {"why": "no end was told"})
        problem = ended(end)
        stages = [r for r in rows if "stage" in r]
        good = bool(stages) and not problem and all(r.get("state") == "ok" for r in stages)
        if output.as_json:
            verdict: Any = next((r["verdict"] for r in rows if "verdict" in r), {})
            output.json({"ok": good, "gpu": gpu, "stages": stages, "verdict": verdict, "problem": problem})
        elif problem:
            output.line(output.paint(safe(f"✖ {problem}"), "bad"))
        return 0 if good else 7

    return live.with_console(args, args.host, work)
