"""What the commands take. argparse only, so that `--help` and a typing error answer at once."""

from __future__ import annotations

import argparse
from typing import Any

from ddtree_console import __version__

EXIT_CODES = """exit codes: 0 ready or done, 2 input, 3 failed and went back, 4 nothing serves (or is not ready),
5 unreachable, 6 locked, 7 refused, 8 serving but not committed, 130 interrupted"""


def _shared(parser: argparse.ArgumentParser, *, again: bool) -> None:
    """Options of every command. again: below a subcommand, where a default would undo what stood before it."""
    fleet: Any = argparse.SUPPRESS if again else None
    read_only: Any = argparse.SUPPRESS if again else False
    parser.add_argument("--fleet", metavar="FILE", default=fleet, help="fleet file; profiles lie beside it")
    parser.add_argument(
        "--read-only", action="store_true", default=read_only, help="refuse everything that changes a host"
    )


def _common() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    _shared(common, again=True)
    common.add_argument("--json", action="store_true", help="JSON with documented keys instead of text")
    return common


def _key(text: str) -> str:
    host, slash, service = text.partition("/")
    if not (host and slash and service) or "/" in service:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST/SERVICE")
    return text


def _scope(text: str) -> str:
    if not text or text.startswith("/") or text.endswith("/") or text.count("/") > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST or HOST/SERVICE")
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def _target(text: str) -> str:
    if text in ("way-back", "known-good") or (text.startswith("r") and text[1:].isascii() and text[1:].isdigit()):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is none of way-back, known-good, rN")


def _index(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 999:
        raise argparse.ArgumentTypeError(f"{text!r} is not the index of a GPU")
    return int(text)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="ddtree-console",
        description="See speculative-decoding services start until they truly serve, and go back with one key.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"ddtree-console {__version__}")
    _shared(top, again=False)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands (none: the screen)")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[_common()], epilog=EXIT_CODES)

    one = add("status", "one line a service; exit 0 when all asked are ready")
    one.add_argument("scope", nargs="?", type=_scope, metavar="HOST[/SERVICE]")
    one = add("watch", "live lines until ctrl+c")
    one.add_argument("scope", nargs="?", type=_scope, metavar="HOST[/SERVICE]")
    one = add("deploy", "put a profile on trial, follow it until it serves or went back")
    one.add_argument("key", type=_key, metavar="HOST/SERVICE")
    one.add_argument("--profile", default="", metavar="NAME", help="default: the service's current one")
    one.add_argument("--detach", action="store_true", help="do not follow")
    one.add_argument("--on-failure", choices=("back", "stop", "leave"), default="back")
    one.add_argument("--hold", type=_seconds, metavar="S", help="seconds that it must hold before the commit")
    one.add_argument("--reason", default="", metavar="TEXT", help="kept in the host's history")
    one.add_argument(
        "--force", action="store_true", help="override failed checks, or a unit edited by hand; needs --reason"
    )
    one.add_argument("--takeover", action="store_true", help="end another's transaction first (logged)")
    one.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
    one = add("rollback", "go back now; a running transaction is asked to")
    one.add_argument("key", type=_key, metavar="HOST/SERVICE")
    one.add_argument("--to", type=_target, default="way-back", metavar="way-back|known-good|rN")
    one.add_argument("--detach", action="store_true", help="do not follow")
    one.add_argument("--takeover", action="store_true", help="end another's transaction first (logged)")
    one = add("logs", "the service's journal")
    one.add_argument("key", type=_key, metavar="HOST/SERVICE")
    one.add_argument("-f", "--follow", action="store_true")
    one.add_argument("-n", "--lines", type=_positive, default=200, metavar="N")
    one.add_argument("--invocation", default="", metavar="ID", help="of this start only")
    one = add("history", "releases and attempts of a service, newest first")
    one.add_argument("key", type=_key, metavar="HOST/SERVICE")
    one.add_argument("-n", "--limit", type=_positive, default=50, metavar="N")
    one = add("report", "an incident file of a deployment for a ticket; secrets are masked")
    one.add_argument("key", type=_key, metavar="HOST/SERVICE")
    one.add_argument("--tx", default="", metavar="ID", help="default: the newest one")
    one.add_argument("-o", "--output", default="", metavar="FILE", help="default: standard output")
    one = add("adopt", "make a profile of a unit: on a host, or a local .service file")
    one.add_argument("what", nargs="+", metavar="HOST UNIT | FILE.service")
    one = add("check", "what stands in the way of a deployment: host, environment, CUDA, models, GPUs, way back")
    one.add_argument("scope", type=_scope, metavar="HOST[/SERVICE]")
    one.add_argument("--profile", default="", metavar="NAME", help="of a service: default is its current one")
    one.add_argument("--against", type=_scope, metavar="HOST[/SERVICE]", help="another environment, side by side")
    one.add_argument("--all", action="store_true", help="with --against: also what is the same")
    one = add(
        "gpu-check", "do Triton, DDTree's kernels and CUDA graphs work on a free GPU, with a service's interpreter"
    )
    one.add_argument("host", metavar="HOST")
    one.add_argument("--gpu", type=_index, metavar="INDEX", help="as NVML counts; default: the service's first")
    one.add_argument(
        "--service", default="", metavar="NAME", help="whose interpreter and environment; default: the GPU's"
    )
    one.add_argument("--memory-mb", type=_positive, default=2000, metavar="N", help="most that torch may allocate")
    one.add_argument("--limit", type=_seconds, default=300.0, metavar="S", help="seconds for all of it")
    one = add("explain", "why it failed, from any log file or journal export; offline")
    one.add_argument("file", nargs="?", default="", metavar="FILE|-")
    one.add_argument("--rules", action="store_true", help="check the rule files, and show which rule matched")
    one = add("demo", "two sandbox hosts on this machine, without a GPU")
    one.add_argument("--speed", type=float, default=20.0, metavar="N", help="how much faster than recorded")
    one.add_argument("--headless", action="store_true", help="no screen: print the fleet file and stay up")
    one.add_argument(
        "--engine",
        choices=("replay", "wrapper"),
        default="replay",
        help="wrapper: the servers really decode on this machine's CPU; needs the packages of [serve]",
    )
    return top
