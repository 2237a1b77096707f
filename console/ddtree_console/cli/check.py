"""`check`: what stands in the way of a deployment; 5 when the host is out of reach, 7 when anything else failed."""

from __future__ import annotations

import argparse

from ddtree_console.cli import live
from ddtree_console.cli.output import Output, safe
from ddtree_console.services.console import LiveConsole

MARKS = {"ok": ("✓", "good"), "warn": ("▲", "warn"), "fail": ("✖", "bad")}


def main(args: argparse.Namespace, output: Output) -> int:
    """The exit code."""

    async def work(console: LiveConsole) -> int:
        host, _, service = args.scope.partition("/")
        checks = await console.check(host, service)
        if output.as_json:
            rows = [{"name": c.name, "state": c.state, "evidence": c.evidence, "remedy": c.remedy} for c in checks]
            output.json({"ok": all(c.state != "fail" for c in checks), "checks": rows})
        else:
            for check in checks:
                mark, colour = MARKS.get(check.state, ("?", "dim"))
                output.line(output.paint(safe(f"{mark} {check.name}: {check.evidence}"), colour))
                if check.remedy and check.state != "ok":
                    output.line(safe(f"    {check.remedy}"))
        failed = [c.name for c in checks if c.state == "fail"]
        return 5 if "connection" in failed else 7 if failed else 0

    return live.with_console(args, args.scope, work)
