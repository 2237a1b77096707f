"""Host keys: which ones are known, and what to say of one that is not. Nothing is ever accepted here."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from ddtree_console.transport.base import TransportError

KINDS = 7  # host keys, CA keys, revoked keys, and four kinds of X.509 things


class KnownHostsError(ValueError):
    """A known_hosts file that cannot be read; the text names it."""


@functools.lru_cache(maxsize=32)
def _load(path: str, mtime_ns: int, size: int) -> asyncssh.SSHKnownHosts:
    return asyncssh.import_known_hosts(Path(path).read_text("utf-8", "surrogateescape"))


def load(path: Path) -> asyncssh.SSHKnownHosts | None:
    """A known_hosts file, parsed again only when it changed; None when there is none. KnownHostsError."""
    try:
        stat = path.stat()
        return _load(str(path), stat.st_mtime_ns, stat.st_size)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise KnownHostsError(f"{path}: {error}") from error


def files(own: str | None, configured: Sequence[str]) -> list[Path]:
    """known_hosts files; a new key belongs into the first: the host's own, else the user's."""
    paths = [own] if own else []
    paths += [p for p in configured if p.lower() != "none"] or ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]
    paths += ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"]
    return [Path(p).expanduser() for p in dict.fromkeys(paths)]


@dataclass
class HostKeys:
    """asyncssh's known_hosts callable for one connection; remembers what it saw, for the error."""

    paths: Sequence[Path]
    known: list[Any] = field(default_factory=list)
    """keys that the files hold for exactly this host and port."""
    holding: Path | None = None
    """the first file that holds one."""
    offered: Any = None
    """the key that the server showed and that is not trusted."""

    def __call__(self, host: str, addr: str, port: int | None) -> Sequence[Sequence[Any]]:
        """All that the files hold of host and address. As in OpenSSH, entries without the port count where none has it.

        Unlike asyncssh's own look-up those never make a key count as changed: they say nothing of this port's server.
        """
        names = [f"[{name}]:{port}" if port else name for name in dict.fromkeys((host, addr)) if name]
        exact = self._match(names)
        self.known = exact[0]
        if port and not any(exact):
            return self._match([name for name in dict.fromkeys((host, addr)) if name], remember=False)
        return exact

    def _match(self, names: Sequence[str], remember: bool = True) -> list[list[Any]]:
        joined: list[list[Any]] = [[] for _ in range(KINDS)]
        for path in self.paths:
            known = load(path)
            for name in names if known else ():
                assert known is not None
                found = known.match(name, "", None)
                if found[0] and remember and self.holding is None:
                    self.holding = path
                for kind, keys in zip(joined, found, strict=True):
                    kind.extend(key for key in keys if key not in kind)
        return joined

    def problem(self, host: str, action: str, where: Where, revoked: bool) -> TransportError:
        """What to tell a person after the server's key was refused."""
        shown = "a key of another kind than the known one"
        kind = "ed25519"
        if self.offered is not None:
            kind = self.offered.get_algorithm().removeprefix("ssh-").split("-")[0]
            shown = f"{kind} {self.offered.get_fingerprint()}"
        learn = where.learn(self.paths[0], kind)
        compare = f"compare it with `ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub` on the host, then"
        if revoked:
            return TransportError(
                "changed-key", host, action, f"the host shows a REVOKED key: {shown}", "ask who runs the host"
            )
        if self.known or self.offered is None:
            file = shlex.quote(str(self.holding or self.paths[0]))
            forget = f"ssh-keygen -f {file} -R {shlex.quote(where.label)}"
            return TransportError(
                "changed-key", host, action, f"the host key CHANGED: it shows {shown}", f"{compare} {forget} && {learn}"
            )
        return TransportError("unknown-key", host, action, f"unknown host key: {shown}", f"{compare} {learn}")


@dataclass(frozen=True)
class Where:
    """Where a connection goes, for commands that a person can copy. jump: user@host:port words of the way, or ''."""

    address: str
    port: int
    user: str
    jump: str = ""

    @property
    def label(self) -> str:
        """The name under which known_hosts keeps it."""
        return self.address if self.port == 22 else f"[{self.address}]:{self.port}"

    def ssh(self) -> str:
        """The ssh command to the same place."""
        port = "" if self.port == 22 else f" -p {self.port}"
        jump = f" -J {shlex.quote(self.jump)}" if self.jump else ""
        return f"ssh{jump}{port} {shlex.quote(f'{self.user}@{self.address}' if self.user else self.address)}"

    def learn(self, file: Path, kind: str) -> str:
        """The command that adds the key: ssh-keyscan cannot go through a jump, there ssh itself asks."""
        if self.jump:
            return f"{self.ssh()} -o UserKnownHostsFile={shlex.quote(str(file))} true"
        port = "" if self.port == 22 else f" -p {self.port}"
        return f"ssh-keyscan -t {kind}{port} {shlex.quote(self.address)} >> {shlex.quote(str(file))}"
