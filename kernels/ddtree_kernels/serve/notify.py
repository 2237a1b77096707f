"""sd_notify(3): tells systemd that the service is ready or stopping. Nothing happens outside a Type=notify unit."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> bool:
    """Sends "READY=1", "STOPPING=1" or "STATUS=..."; whether there was anybody to tell."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return False
    address = "\0" + path[1:] if path[0] == "@" else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect(address)
            channel.sendall(state.encode())
    except OSError:  # a manager that does not listen is no reason not to serve
        return False
    return True
