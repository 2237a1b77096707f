"""One HTTP request to a server on this host: no proxy, a deadline for the whole of it, the key read from /proc."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddtree_console.hostside import procfs
from ddtree_console.hostside.roots import Roots

BODY_CAP = 4 * 1024 * 1024


@dataclass(frozen=True)
class Answer:
    """status None: no answer, and `error` says why. seconds: the whole request. The body is cut at 4 MiB."""

    status: int | None
    body: bytes = b""
    seconds: float = 0.0
    error: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


def reachable(address: str) -> str:
    """Where to connect for a socket bound to that address: loopback for the any-addresses."""
    if address in ("", "0.0.0.0"):
        return "127.0.0.1"
    if address == "::":
        return "::1"
    return address[7:] if address.startswith("::ffff:") and "." in address else address


def ask(
    port: int,
    address: str,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    timeout: float = 5.0,
    bearer: str | None = None,
) -> Answer:
    """The answer, whatever its status. Never raises: a failure is Answer(None, error=...)."""
    began = time.monotonic()
    deadline = began + timeout
    connection = http.client.HTTPConnection(reachable(address), port, timeout=timeout)
    headers = {"Accept": "*/*", "User-Agent": "ddtree-console", "Connection": "close"}
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    if bearer:
        headers["Authorization"] = f"Bearer {bearer}"
    status: int | None = None
    got = b""
    try:
        connection.request(method, path, body=data, headers=headers)
        sock = connection.sock  # kept: the response takes it over when the server closes
        sock.settimeout(max(0.01, deadline - time.monotonic()))
        response = connection.getresponse()
        status = response.status
        while len(got) < BODY_CAP and not response.isclosed():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            sock.settimeout(left)
            piece = response.read1(65536)
            if not piece:
                break
            got += piece
        return Answer(status, got, time.monotonic() - began, "", {k.lower(): v for k, v in response.getheaders()})
    except (TimeoutError, socket.timeout):  # two classes before 3.10
        said = f"answered {status}, then stalled" if status else "no answer"
        return Answer(None, got, time.monotonic() - began, f"{said} within {timeout:g} s")
    except (OSError, http.client.HTTPException, UnicodeError, ValueError) as error:
        return Answer(None, got, time.monotonic() - began, reason(error))
    finally:
        connection.close()


def reason(error: Exception) -> str:
    """A failure in plain words."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, http.client.RemoteDisconnected):  # also a ConnectionResetError
        return "closed without an answer"
    if isinstance(error, ConnectionResetError):
        return "connection reset"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def bearer_of(roots: Roots, pid: int) -> str | None:
    """The API key on a process's command line, None where there is none. Keep it on this host, out of every output."""
    argv = procfs.cmdline(roots, pid)
    for i, word in enumerate(argv):
        if word.startswith("--api-key="):
            return word[len("--api-key=") :] or None
        if word == "--api-key" and i + 1 < len(argv):
            return argv[i + 1]
    return None
