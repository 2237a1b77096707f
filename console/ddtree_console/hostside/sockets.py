"""Who listens on a port: from /proc/PID/net/tcp{,6} and the socket inodes that processes hold. Never `ss`.

The table is that of the unit's own network namespace, read through its main process.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ddtree_console.domain.snapshot import Listener
from ddtree_console.hostside import procfs
from ddtree_console.hostside.roots import Roots

_LISTEN = b"0A"


@dataclass(frozen=True)
class Socket:
    """A listening TCP socket. uid is its owner's."""

    address: str
    port: int
    inode: int
    uid: int


def address_of(text: bytes) -> str:
    """The address in /proc's notation: 32-bit words in this machine's byte order."""
    words = bytes.fromhex(text.decode("ascii"))
    if len(words) not in (4, 16):
        raise ValueError("not an address")
    network = b"".join(
        int.from_bytes(words[i : i + 4], "big").to_bytes(4, sys.byteorder) for i in range(0, len(words), 4)
    )
    return socket.inet_ntop(socket.AF_INET if len(network) == 4 else socket.AF_INET6, network)


def listening(table: bytes, port: int) -> Iterator[Socket]:
    """The listeners on that port in the text of a net/tcp or net/tcp6; broken lines are skipped."""
    wanted = b":%04X" % port
    for line in table.splitlines():
        if wanted not in line:
            continue
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTEN or not fields[1].endswith(wanted):
            continue
        try:
            yield Socket(address_of(fields[1][: -len(wanted)]), port, int(fields[9]), int(fields[7]))
        except (ValueError, OSError):
            continue


class Tables:
    """net/tcp and net/tcp6 by network namespace, each read once: the kernel walks its whole hash for one, for ms."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._read: dict[object, bytes] = {}

    def of(self, pid: int) -> bytes:
        """Both tables as that process sees them; our own view where it has none (0, gone, or hidden from us)."""
        proc = Path(self._roots.proc)
        try:
            key: object = (proc / str(pid or "self") / "ns" / "net").stat().st_ino
        except OSError:
            key = f"pid {pid}"
        if key not in self._read:
            base = proc / str(pid or "self") / "net"
            if pid and procfs.read(base / "tcp") is None:
                base = proc / "self" / "net"
            self._read[key] = b"".join(procfs.read(base / name) or b"" for name in ("tcp", "tcp6"))
        return self._read[key]


@dataclass(frozen=True)
class Holder:
    """The process that holds a socket, and where in /proc that shows."""

    pid: int
    inode: int
    link: Path

    def still(self) -> bool:
        """Whether it holds it now: one readlink, where the tables would cost milliseconds."""
        try:
            return str(self.link.readlink()) == f"socket:[{self.inode}]"
        except OSError:
            return False


def holder(roots: Roots, inodes: Iterable[int], pids: Iterable[int]) -> Holder | None:
    """The first of these processes that holds one of these sockets."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    for pid in pids:
        try:
            entries = list(Path(roots.proc, str(pid), "fd").iterdir())
        except OSError:
            continue
        for entry in entries:
            try:
                target = str(entry.readlink())
            except OSError:
                continue
            if target in wanted:
                return Holder(pid, wanted[target], entry)
    return None


def all_pids(roots: Roots) -> list[int]:
    """Every process that /proc shows."""
    try:
        return sorted(int(path.name) for path in Path(roots.proc).iterdir() if path.name.isdigit())
    except OSError:
        return []


def look(roots: Roots, port: int, control_group: str, table: bytes) -> tuple[Listener, Holder | None]:
    """Who listens on the port in that table, and the holder where it is known."""
    found = list(listening(table, port))
    if not found:
        return Listener("nobody"), None
    by_inode = {s.inode: s for s in found}
    own = procfs.cgroup_pids(roots, control_group)
    held = holder(roots, by_inode, own)
    if held:
        return Listener("ours", by_inode[held.inode].address, held.pid, procfs.comm(roots, held.pid)), held
    first = found[0]
    if os.geteuid() != 0 and first.uid != os.geteuid():
        why = f"the socket belongs to uid {first.uid}: only root can see whose"
        return Listener("unknown", first.address, why=why), None
    others = holder(roots, by_inode, (pid for pid in all_pids(roots) if pid not in set(own)))
    if others:
        foreign = Listener("foreign", by_inode[others.inode].address, others.pid, procfs.comm(roots, others.pid))
        return foreign, others
    return Listener("foreign", first.address, why="held by a process that /proc does not show here"), None


def listener(roots: Roots, port: int, control_group: str, main_pid: int) -> Listener:
    """Who listens on the port, seen from the unit's namespace. `ours` = a process of its cgroup holds the socket."""
    return look(roots, port, control_group, Tables(roots).of(main_pid))[0]
