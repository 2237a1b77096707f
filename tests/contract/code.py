"""The host code on a host, put there through the back door."""

from __future__ import annotations

from collections.abc import Callable

from tests.contract.real import RealHost
from tests.lab.hostcode import VAR, host_code

Argv = Callable[[str], list[str]]
"""the command line of a host command."""


def give_code(host: RealHost) -> Argv:
    """Installs it; what starts its commands."""
    folder = f"{VAR}/bin/{host_code().hash}"
    for name, data in host_code().files.items():
        host.write(f"{folder}/{name}", data)
    roots = (f"--roots={host.spec.roots}",) if host.spec.roots else ()
    return lambda command: ["python3", "-I", "-B", host.remote(folder), *roots, command]
