"""`request`: extend, back, confirm or abandon for a running transaction; waits at most 2 s for its acknowledgement."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from ddtree_console.hostside import mark, requests, unitctl
from ddtree_console.hostside.hostclock import Clock
from ddtree_console.hostside.reply import refuse, say
from ddtree_console.hostside.roots import Roots

ACK_S = 2.0
POLL_S = 0.02


def request(roots: Roots, raw: Mapping[str, Any], clock: Clock) -> int:
    """Writes it, waits, answers. A `back` that nobody takes kills the transaction: its recovery goes back."""
    unit, kind = str(raw["unit"]), str(raw["request"])
    if kind not in requests.KINDS:
        return refuse(2, f"request: {kind!r} is none of {', '.join(requests.KINDS)}", "use a console of this version")
    now = mark.read(roots, unit)
    wanted = str(raw.get("tx") or now.tx)
    if not now.tx or now.outcome or wanted != now.tx:
        return refuse(7, f"no transaction {wanted} runs on {unit}".replace("  ", " "), "start a new one")
    put = requests.Request(os.urandom(4).hex(), now.tx, kind, str(raw.get("who") or ""), str(raw.get("to") or ""))
    requests.put(roots, unit, put)
    end = clock.boottime() + ACK_S
    while clock.boottime() < end:
        answer = requests.answered(roots, unit, put)
        if answer is not None:
            if answer.get("state") == "refused":
                return refuse(7, str(answer.get("cause")), "wait until a token was generated")
            return say({"ok": True, "acked": True})
        if mark.read(roots, unit).outcome:
            break
        clock.sleep(POLL_S)
    if kind != "back" or mark.read(roots, unit).outcome:
        requests.withdraw(roots, unit)
        return say({"ok": True, "acked": False})
    name = unitctl.tx_unit(unit)
    if unitctl.show(name).active in ("active", "activating", "reloading"):
        # The request stays: recovery reads it first.
        unitctl.kill(name)
        return say({"ok": True, "acked": False, "killed": True})
    return say({"ok": True, "acked": False})


def main(roots: Roots, args: list[str]) -> int:
    """`request`: the request on stdin."""
    try:
        raw = json.loads(sys.stdin.buffer.read())
        return request(roots, raw, Clock())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return refuse(2, f"bad request: {type(error).__name__}: {error}", "use a console of this version")
    except OSError as error:
        return refuse(7, f"{roots.live('')}: {error.strerror}", "make room in /run")
