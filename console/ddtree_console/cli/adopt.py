"""`adopt`: a unit becomes a profile, from a host (which keeps it as r1) or from a local .service file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ddtree_console.cli import live
from ddtree_console.cli.output import Output, safe
from ddtree_console.domain.adoption import Adopted, adopt
from ddtree_console.services.adopt import profile_name
from ddtree_console.services.console import LiveConsole
from ddtree_console.services.errors import HostError, NoFleet


def main(args: argparse.Namespace, output: Output) -> int:
    """The exit code."""
    what: list[str] = args.what
    if len(what) == 1:
        return _file(args, Path(what[0]), output)
    if len(what) != 2:
        raise HostError(
            "adopt", "read the arguments", f"{len(what)} names", "adopt HOST UNIT, or adopt FILE.service", 2
        )

    async def work(console: LiveConsole) -> int:
        name, path = await console.adopt(what[0], what[1])
        if output.as_json:
            output.json({"ok": True, "profile": name, "path": path})
        else:
            output.line(safe(f"{what[0]}: {what[1]} kept on the host; profile {name} written to {path}"))
        return 0

    return live.with_console(args, what[0], work)


def read_file(path: Path) -> Adopted:
    """The unit in a file with the drop-ins of its FILE.d folder; HostError(2) for one that cannot be read."""
    try:
        text = path.read_text("utf-8", "surrogateescape")
        folder = path.with_name(path.name + ".d")
        drop_ins = [(str(p), p.read_text("utf-8", "surrogateescape")) for p in sorted(folder.glob("*.conf"))]
    except OSError as error:
        raise HostError(
            str(path), "read the unit file", error.strerror or str(error), "adopt FILE.service", 2
        ) from error
    if "[Service]" not in text:
        raise HostError(str(path), "read the unit file", "it has no [Service] section", "name a .service file", 2)
    return adopt(text, drop_ins)


def _folder(args: argparse.Namespace) -> Path:
    """Where profiles lie: beside the fleet file, else ./profiles."""
    from ddtree_console.config.load import find_fleet

    try:
        found = find_fleet(args.fleet)
    except NoFleet:
        found = None
    return found.parent if found is not None else Path("profiles")


def _file(args: argparse.Namespace, path: Path, output: Output) -> int:
    from dataclasses import replace

    from ddtree_console.config.store import ProfileStore

    adopted = read_file(path)
    if args.read_only:
        raise HostError(str(path), "adopt", "this console is read-only", "start it without --read-only", 7)
    folder = _folder(args)
    folder.mkdir(parents=True, exist_ok=True)
    name = profile_name(path.name, [p.stem for p in folder.glob("*.yaml")])
    written = ProfileStore(folder).save("", name, replace(adopted.profile, name=name))
    slot = slot_of(path.name, name, adopted)
    if output.as_json:
        output.json(
            {"ok": True, "profile": name, "path": str(written), "slot": slot, "warnings": list(adopted.warnings)}
        )
        return 0
    output.line(safe(f"profile {name} written to {written}"))
    for warning in adopted.warnings:
        output.line(output.paint(safe(f"warning: {warning}"), "warn"))
    output.line(safe(f"its slot, for {folder / 'fleet.yaml'}:"))
    for line in slot_lines(slot):
        output.line(safe(line))
    return 0


def slot_of(unit: str, profile: str, adopted: Adopted) -> dict[str, Any]:
    """The service of a fleet file that runs this unit."""
    return {"unit": unit, "port": adopted.port or 30000, "gpus": list(adopted.gpus), "profile": profile}


def slot_lines(slot: dict[str, Any]) -> list[str]:
    """The slot as it stands in fleet.yaml, below a host of the operator's naming."""
    return [
        "hosts:",
        "  HOST:",
        "    address: HOST.example",
        "    services:",
        f"      {slot['profile']}:",
        *(f"        {key}: {value}" for key, value in slot.items()),
    ]
