"""Addresses as a socket is bound and as one connects to it."""

from __future__ import annotations


def reachable(address: str) -> str:
    """Where to connect for a socket bound to that address: loopback for the any-addresses."""
    if address in ("", "0.0.0.0"):
        return "127.0.0.1"
    if address == "::":
        return "::1"
    return address.removeprefix("::ffff:") if "." in address else address
