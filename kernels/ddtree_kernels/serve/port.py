"""The port: taken early, so that another program on it is found before anything is loaded; opened late."""

from __future__ import annotations

import socket


class PortTaken(RuntimeError):
    """The address cannot be had; one line, worded as uvicorn words it."""


def reserve(host: str, port: int) -> socket.socket:
    """A socket bound to the address but not listening: a client is refused until listen(). PortTaken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((host, port))
    except OSError as error:
        taken.close()
        raise _taken(error, host, port) from error
    return taken


def listen(bound: socket.socket, backlog: int = 2048) -> None:
    """Opens it. PortTaken where another program, bound to it as early, began to listen meanwhile."""
    try:
        bound.listen(backlog)
    except OSError as error:
        raise _taken(error, *bound.getsockname()[:2]) from error


def _taken(error: OSError, host: str, port: int) -> PortTaken:
    why = (error.strerror or str(error)).lower()
    return PortTaken(
        f"[Errno {error.errno}] error while attempting to bind on address ('{host}', {port}): {why}; "
        "choose another --port, or stop what listens there"
    )
