"""`demo`: sandbox hosts on this machine, behind the screen, or without it for the other commands."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddtree_console.cli.output import Output
from ddtree_console.domain.spec import Fleet
from ddtree_console.services.api import Console
from ddtree_console.services.errors import HostError

DOORS = "demo.json"
"""Beside a demo's fleet file: how its hosts are reached, which no fleet file of real hosts may say (moved roots)."""
_FIELDS = ("address", "port", "user", "identity", "known_hosts", "roots")


def write_doors(fleet: Fleet) -> Path:
    """Writes how the demo's hosts are reached; the path of the fleet file that other commands take."""
    path = Path(fleet.path)
    doors = {h.name: {name: getattr(h, name) for name in _FIELDS} for h in fleet.hosts}
    hold = {s.key: s.hold_s for h in fleet.hosts for s in h.services}
    path.with_name(DOORS).write_text(json.dumps({"hosts": doors, "hold_s": hold}), "utf-8")
    return path


def reached(fleet: Fleet) -> Fleet:
    """The fleet as it is, or, where a demo runs it, with its hosts' doors."""
    try:
        raw: dict[str, Any] = json.loads(Path(fleet.path).with_name(DOORS).read_text("utf-8"))
    except (OSError, ValueError):
        return fleet
    hosts = []
    for host in fleet.hosts:
        services = tuple(replace(s, hold_s=raw["hold_s"].get(s.key, s.hold_s)) for s in host.services)
        door = raw["hosts"].get(host.name, {})
        hosts.append(replace(host, services=services, **{k: v for k, v in door.items() if k in _FIELDS}))
    return replace(fleet, hosts=tuple(hosts), demo=True)


def main(args: argparse.Namespace, output: Output) -> int:
    """0 once it was left."""
    if not 0.1 <= args.speed <= 1000:
        raise HostError("demo", "read the arguments", f"--speed {args.speed:g}", "choose between 0.1 and 1000", 2)
    if args.engine == "wrapper":
        from ddtree_console.demo.wrapper_fleet import missing

        absent = missing()
        if absent:
            cause = f"the wrapper server needs {', '.join(absent)}, not installed in this Python"
            raise HostError("demo", "start", cause, "pip install 'ddtree-console[serve]', or leave out --engine", 2)
    return _headless(args, output) if args.headless else _screen(args, output)


def _model(args: argparse.Namespace) -> str:
    return "tiny" if args.engine == "wrapper" else ""


def _screen(args: argparse.Namespace, output: Output) -> int:
    from ddtree_console.ui.app import ConsoleApp

    with ExitStack() as stack:

        def load() -> Console:
            from ddtree_console.cli import live
            from ddtree_console.demo.serve import running_demo

            return live.build(stack.enter_context(running_demo(args.speed, _model(args))), args.read_only)

        app = ConsoleApp(load, demo=True, read_only=args.read_only)
        text = app.run()
    _farewell(output)
    for line in (text or "").splitlines():
        output.note(line)
    return app.return_code or 0


def _farewell(output: Output) -> None:
    from ddtree_console.demo.serve import FAREWELL

    output.note(FAREWELL)


def _headless(args: argparse.Namespace, output: Output) -> int:
    from ddtree_console.demo.serve import running_demo

    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    with running_demo(args.speed, _model(args)) as fleet:
        path = write_doors(fleet)
        if output.as_json:
            output.json({"fleet": str(path), "services": [s.key for h in fleet.hosts for s in h.services]})
        else:
            output.line(str(path))
            output.note(f"demo: two sandbox hosts run until ctrl+c; try: ddtree-console status --fleet {path}")
        ended.wait()
    _farewell(output)
    return 0
