"""The `http` command: asks a server of this host, with its own key where that is asked for. The key stays here."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from ddtree_console.hostside import ask, request_json
from ddtree_console.hostside.roots import Roots

LONGEST = 600.0


def answer(roots: Roots, question: Mapping[str, Any]) -> dict[str, Any]:
    """{"status", "body", "headers", "seconds"}, or {"status": null, "error"}. ValueError for an odd question."""
    port, path, body = question.get("port"), question.get("path"), question.get("body")
    method = str(question.get("method") or "GET").upper()
    if not isinstance(port, int) or not isinstance(path, str) or not path.startswith("/"):
        raise ValueError("an http question needs port and path")
    if method not in ("GET", "POST"):
        raise ValueError(f"method {method}: only GET and POST")
    timeout = question.get("timeout")
    pid = question.get("pid")
    bearer = ask.bearer_of(roots, pid) if question.get("auth") and isinstance(pid, int) and pid > 0 else None
    got = ask.ask(
        port,
        str(question.get("address") or ""),
        method,
        path,
        body if isinstance(body, dict) else None,
        min(LONGEST, float(timeout)) if isinstance(timeout, (int, float)) and timeout > 0 else 5.0,
        bearer,
    )
    text = got.body.decode("utf-8", "replace")
    if bearer:
        # A server may echo what it was asked with; the key must not leave the host that way either.
        text = text.replace(bearer, "***")
    out: dict[str, Any] = {"status": got.status, "body": text, "seconds": round(got.seconds, 4)}
    if got.status is None:
        out["error"] = got.error
    else:
        out["headers"] = {k: v for k, v in got.headers.items() if not bearer or bearer not in v}
    return out


def main(roots: Roots, args: list[str]) -> int:
    """One question on stdin, one answer on stdout."""
    try:
        reply = answer(roots, request_json.read())
    except ValueError as error:
        return request_json.refuse(2, str(error), "correct the question")
    sys.stdout.write(json.dumps(reply) + "\n")
    return 0
