"""Requests to a running transaction: a file in /run that the console writes and the transaction acknowledges."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddtree_console.hostside import durable
from ddtree_console.hostside.roots import Roots

KINDS = ("extend", "back", "confirm", "abandon")


@dataclass(frozen=True)
class Request:
    """id: of this request, for its acknowledgement. to: way-back | known-good | rN (back only)."""

    id: str
    tx: str
    request: str
    who: str = ""
    to: str = ""


def request_path(roots: Roots, unit: str) -> Path:
    """request.json of a unit."""
    return roots.live(unit) / "request.json"


def answer_path(roots: Roots, unit: str) -> Path:
    """Where the transaction answers."""
    return roots.live(unit) / "answer.json"


def put(roots: Roots, unit: str, request: Request) -> None:
    """Writes the request. OSError when /run refuses."""
    value = {"id": request.id, "unit": unit, "tx": request.tx, "request": request.request, "who": request.who}
    durable.write_json(request_path(roots, unit), {**value, "to": request.to})


def pending(roots: Roots, unit: str, tx: str) -> Request | None:
    """The request that waits for this transaction, None when there is none."""
    path = request_path(roots, unit)
    if not path.exists():
        return None
    raw = durable.read_json(path)
    if raw.get("tx") != tx or raw.get("request") not in KINDS:
        return None
    words = {key: str(raw.get(key) or "") for key in ("id", "tx", "request", "who", "to")}
    return Request(**words)


def answer(roots: Roots, unit: str, request: Request, state: str, cause: str = "") -> None:
    """Acknowledges or refuses, and takes the request away. state: acknowledged | refused. OSError as put()."""
    durable.write_json(answer_path(roots, unit), {"id": request.id, "state": state, "cause": cause})
    withdraw(roots, unit)


def answered(roots: Roots, unit: str, request: Request) -> dict[str, Any] | None:
    """The transaction's answer to that request, None while there is none."""
    raw = durable.read_json(answer_path(roots, unit))
    return raw if raw.get("id") == request.id else None


def withdraw(roots: Roots, unit: str) -> None:
    """Takes a request away."""
    request_path(roots, unit).unlink(missing_ok=True)
