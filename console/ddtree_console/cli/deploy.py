"""`deploy` and `rollback`: submit to the host, then follow to the end. The transaction lives there, not here."""

from __future__ import annotations

import argparse
import asyncio

from ddtree_console.cli import live
from ddtree_console.cli.check import rows
from ddtree_console.cli.events_text import Narrator, exit_code
from ddtree_console.cli.output import Output, safe
from ddtree_console.domain.events import OUTCOME
from ddtree_console.services.api import DeployPreview, Submitted
from ddtree_console.services.console import LiveConsole
from ddtree_console.services.errors import HostError
from ddtree_console.services.preflight import ChecksFailed


def main(args: argparse.Namespace, output: Output) -> int:
    """The exit code of the outcome; 130 when following was interrupted."""
    if args.command == "deploy" and args.force and not args.reason:
        raise HostError(args.key, "deploy", "--force needs a reason", "add --reason TEXT; the history keeps it", 2)
    submitted: list[Submitted] = []

    async def work(console: LiveConsole) -> int:
        if args.command == "rollback":
            preview = await _rollback_preview(console, args)
            output.note(preview)
            one = await console.rollback(args.key, args.to, takeover=args.takeover)
        elif args.dry_run:
            return _show(await console.preview(args.key, args.profile), output)
        else:
            one = await console.deploy(
                args.key,
                args.profile,
                on_failure=args.on_failure,
                hold=args.hold,
                reason=args.reason,
                force=args.force,
                takeover=args.takeover,
            )
        submitted.append(one)
        if args.detach:
            if output.as_json:
                output.json({"ok": True, "key": one.key, "tx": one.tx})
            else:
                output.line(safe(f"{one.key}: transaction {one.tx} runs on the host"))
            return 0
        return await follow(console, one, output)

    try:
        return live.with_console(args, args.key, work)
    except ChecksFailed as refused:
        return _refused(refused, output)
    except KeyboardInterrupt:
        if submitted:
            output.note(
                f"transaction {submitted[0].tx} goes on on the host; `ddtree-console watch {args.key}` shows it"
            )
            output.note(f"`ddtree-console rollback {args.key}` asks it to go back")
        raise


def _refused(refused: ChecksFailed, output: Output) -> int:
    """Every check that refused, with its remedy; 7."""
    if output.as_json:
        about = {"host": refused.host, "action": refused.action, "cause": refused.cause, "next": refused.next_step}
        output.json({"ok": False, **about, "code": refused.code, "checks": rows(refused.failed)})
    output.note(f"ddtree-console: {refused.host}: {refused.action}: refused, nothing was changed")
    for check in refused.failed:
        output.note(f"✖ {check.name}: {check.evidence}")
        if check.remedy:
            output.note(f"    {check.remedy}")
    output.note("  next: mend that, or deploy with --force --reason TEXT; the history keeps the reason")
    return refused.code


async def _rollback_preview(console: LiveConsole, args: argparse.Namespace) -> str:
    host = args.key.partition("/")[0]
    await console.monitor.hosts[host].link.ready("roll back")
    preview = await console.preview_rollback(args.key, args.to)
    if preview.refusal and console.read_only:
        raise HostError(args.key, "roll back", preview.refusal, "start without --read-only", 7)
    requests = f", {preview.running_requests} running requests are lost" if preview.running_requests else ""
    return f"{args.key}: back to {preview.target or args.to}{requests}"


def _show(preview: DeployPreview, output: Output) -> int:
    """What a deployment would do; 7 where the host would refuse."""
    if output.as_json:
        output.json(
            {
                "key": preview.key,
                "profile": preview.profile,
                "from": preview.release_from,
                "command": preview.command,
                "changes": [
                    {"where": d.where, "name": d.name, "old": d.old, "new": d.new} for d in preview.diff_running
                ],
                "unit_diff": list(preview.unit_diff),
                "running_requests": preview.running_requests,
                "on_failure": preview.on_failure,
                "warnings": list(preview.warnings),
                "refusals": list(preview.refusals),
                "forceable": preview.forceable,
            }
        )
        return 7 if preview.refusals else 0
    output.line(safe(f"{preview.key}: {preview.release_from or 'nothing'} -> {preview.profile}"))
    for change in preview.diff_running:
        output.line(safe(f"  {change.where} {change.name}: {change.old or '–'} -> {change.new or '–'}"))
    for line in preview.unit_diff:
        output.line(output.paint(safe(line.rstrip("\n")), {"+": "good", "-": "bad"}.get(line[:1], "dim")))
    output.line(safe(f"on failure: {preview.on_failure}"))
    for warning in preview.warnings:
        output.line(output.paint(safe(f"warning: {warning}"), "warn"))
    for refusal in preview.refusals:
        output.line(output.paint(safe(f"refused: {refusal}"), "bad"))
    return 7 if preview.refusals else 0


async def follow(console: LiveConsole, one: Submitted, output: Output) -> int:
    """Tells the transaction to its outcome; the exit code."""
    narrator = Narrator(one.key)
    watching = asyncio.ensure_future(_tell_the_link(console, one, output))
    try:
        async for event in console.follow(one.key, one.tx):
            if output.as_json:
                output.json(
                    {"tx": event.tx, "n": event.n, "t": event.t, "wall": event.wall, "kind": event.kind, **event.data}
                )
            else:
                for text, colour in narrator.tell(event):
                    output.line(output.paint(text, colour))
            if event.kind == OUTCOME:
                return exit_code(event.data)
    finally:
        watching.cancel()
    raise HostError(one.key, "follow", f"{one.tx} told no outcome", f"see `ddtree-console history {one.key}`", 5)


async def _tell_the_link(console: LiveConsole, one: Submitted, output: Output) -> None:
    """Says when the host goes out of reach: the transaction does not care, its reader may."""
    host = one.key.partition("/")[0]
    was = "up"
    snapshot = console.snapshot()
    while True:
        seen = next(h for h in snapshot.hosts if h.name == host)
        now = "up" if seen.link in ("up", "unprivileged") else "down" if seen.link in ("down", "refused") else was
        if now != was:
            lost = f"{seen.error}; the transaction goes on on the host"
            output.note(lost if now == "down" else f"{host}: connected again")
            was = now
        snapshot = await console.changed(snapshot.serial)
