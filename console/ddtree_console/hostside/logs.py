"""A piece of the journal: the newest lines of a unit or of one invocation, oldest first."""

from __future__ import annotations

import sys

from ddtree_console.hostside import child, journalctl, request_json
from ddtree_console.hostside.roots import Roots

MOST = 100_000


def main(roots: Roots, args: list[str]) -> int:
    """journalctl's JSON lines as they are; after them a refusal when it failed."""
    try:
        raw = request_json.read()
        unit, lines = request_json.unit_of(raw), raw.get("lines")
        count = min(MOST, max(1, lines)) if isinstance(lines, int) else 1000
        chosen = journalctl.matches([unit], str(raw["invocation"]) if raw.get("invocation") else None)
    except ValueError as error:
        return request_json.refuse(2, str(error), "correct the request")
    try:
        reader = child.start([*journalctl.base(), f"--lines={count}", *chosen])
    except OSError as error:
        return request_json.refuse(5, f"journalctl: {error.strerror}", "is this a systemd host?")
    assert reader.stdout is not None and reader.stderr is not None
    # Its few words on stderr fit the pipe: it never waits for us to read them.
    empty = True
    while data := reader.stdout.read(1 << 18):
        if not data.startswith(b"-- "):  # "-- No entries --" is its whole output then
            sys.stdout.buffer.write(data)
            empty = False
    problem = reader.stderr.read().decode("utf-8", "replace").strip()
    status = reader.wait()
    sys.stdout.buffer.flush()
    problem = (journalctl.hidden(roots) if empty else "") or problem
    if status != 0 or (empty and problem):
        return request_json.refuse(5, problem or f"journalctl ended with {status}", "look at the host's journal")
    return 0
