"""The `events` command: everything that one transaction wrote so far."""

from __future__ import annotations

import re
import sys

from ddtree_console.hostside import eventlog, request_json
from ddtree_console.hostside.roots import Roots

_TX = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)


def main(roots: Roots, args: list[str]) -> int:
    """A line an event; the newest transaction where none is named."""
    try:
        raw = request_json.read()
        unit = request_json.unit_of(raw)
        tx = raw.get("tx") or eventlog.newest_tx(roots, unit)
        if tx is not None and not (isinstance(tx, str) and _TX.fullmatch(tx)):
            raise ValueError(f"not a transaction: {tx!r}")
    except ValueError as error:
        return request_json.refuse(2, str(error), "correct the request")
    for line in eventlog.read_events(roots, unit, tx) if tx else ():
        sys.stdout.write(line.encode("utf-8", "backslashreplace").decode() + "\n")
    return 0
