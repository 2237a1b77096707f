"""`check`: what stands in the way of a deployment; 5 when the host is out of reach, 7 when anything else failed."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from ddtree_console.cli import live
from ddtree_console.cli.output import Output, safe, table
from ddtree_console.domain.spec import Fleet
from ddtree_console.services.api import Check
from ddtree_console.services.compare import Comparison
from ddtree_console.services.console import LiveConsole
from ddtree_console.services.errors import HostError

MARKS = {"ok": ("✓", "good"), "warn": ("▲", "warn"), "fail": ("✖", "bad")}


def show(checks: Iterable[Check], output: Output) -> None:
    """A line each, its remedy below where it is not ok."""
    for check in checks:
        mark, colour = MARKS.get(check.state, ("?", "dim"))
        output.line(output.paint(safe(f"{mark} {check.name}: {check.evidence}"), colour))
        if check.remedy and check.state != "ok":
            output.line(safe(f"    {check.remedy}"))


def rows(checks: Iterable[Check]) -> list[dict[str, str]]:
    """The checks as JSON."""
    return [{"name": c.name, "state": c.state, "evidence": c.evidence, "remedy": c.remedy} for c in checks]


def main(args: argparse.Namespace, output: Output) -> int:
    """The exit code."""
    if args.against:
        return against(args, output)

    async def work(console: LiveConsole) -> int:
        host, _, service = args.scope.partition("/")
        if service:
            # A slot: also its build, its flags and its memory.
            checks = (await console.preflight(args.scope, args.profile)).checks
        else:
            checks = tuple(await console.check(host))
        if output.as_json:
            output.json({"ok": all(c.state != "fail" for c in checks), "checks": rows(checks)})
        else:
            show(checks, output)
        failed = [c.name for c in checks if c.state == "fail"]
        return 5 if "connection" in failed else 7 if failed else 0

    return live.with_console(args, args.scope, work)


def one_service(fleet: Fleet, scope: str) -> str:
    """HOST/SERVICE: the host's only service where none is named; HostError(2)."""
    live.only(fleet, scope)
    host, _, service = scope.partition("/")
    keys = [s.key for s in fleet.host(host).services]
    if service:
        return scope
    if len(keys) != 1:
        cause = f"{host} has {len(keys)} services"
        raise HostError(host, "compare", cause, f"name one: {', '.join(keys) or 'it has none'}", 2)
    return keys[0]


def against(args: argparse.Namespace, output: Output) -> int:
    """Two environments side by side; 0 when both could be read."""
    fleet = live.load_fleet(args.fleet)
    a, b = one_service(fleet, args.scope), one_service(fleet, args.against)

    async def work(console: LiveConsole) -> int:
        found = await console.compare(a, b)
        if output.as_json:
            output.json(_json(found))
        else:
            _table(found, output, args.all)
        return 0

    hosts = {key.partition("/")[0] for key in (a, b)}
    return live.with_hosts(args, fleet, hosts, work)


def _json(found: Comparison) -> dict[str, object]:
    return {
        "a": found.a,
        "b": found.b,
        "rows": [{"part": r.part, "name": r.name, "a": r.a, "b": r.b, "differs": r.differs} for r in found.rows],
        "b_has_that_a_needs": [{"name": o.name, "wanted": o.pin, "version": o.version} for o in found.offers],
        "problems": list(found.problems),
    }


def _table(found: Comparison, output: Output, everything: bool) -> None:
    shown = [r for r in found.rows if everything or r.differs or r.part in ("host", "cuda")]
    cells = [["", safe(r.name), safe(r.a), safe(r.b)] for r in shown]
    lines = table([["", "", safe(found.a), safe(found.b)], *cells])
    output.line(lines[0])
    for row, line in zip(shown, lines[1:], strict=True):
        mark = "≠" if row.differs else " "
        output.line(output.paint(f"{mark}{line[1:]}", "warn" if row.differs else "dim"))
    alike = sum(not r.differs for r in found.rows if r not in shown)
    if alike:
        output.line(f"{alike} packages are the same; --all shows them")
    for offer in found.offers:
        wanted = f" (it wants {offer.pin})" if offer.pin else ""
        output.line(safe(f"{found.b} has what {found.a} needs: {offer.name} {offer.version}{wanted}"))
    for problem in found.problems:
        output.line(output.paint(safe(f"? {problem}"), "dim"))
