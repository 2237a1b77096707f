"""asyncssh's exceptions -> TransportError: what failed, why, and what a person can do in another shell."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

import asyncssh

from ddtree_console.transport.base import TransportError
from ddtree_console.transport.ssh_hostkey import HostKeys, KnownHostsError, Where

# What reads, writes and channel calls raise once a connection is gone.
BROKEN: tuple[type[BaseException], ...] = (OSError, EOFError, asyncssh.Error)
# And what setting one up may raise besides: bad known_hosts, configuration, key files.
FAILED: tuple[type[BaseException], ...] = (*BROKEN, ValueError)

DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")


def is_locked(path: Path) -> bool:
    """Whether a private key file needs a passphrase."""
    try:
        asyncssh.read_private_key(path)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        return "passphrase" in str(error).lower()
    except (OSError, ValueError):
        return False
    return False


def key_files(identity: str | None, configured: Sequence[str]) -> list[Path]:
    """Private key files that a connection would use."""
    named = [identity] if identity else list(configured) or [f"~/.ssh/{name}" for name in DEFAULT_KEYS]
    return [path for path in (Path(name).expanduser() for name in named) if path.is_file()]


def denied(host: str, action: str, where: Where, keys: Iterable[Path], agent: Sequence[bytes] | None) -> TransportError:
    """Authentication failed: a locked key that no agent holds is the likeliest reason, and has its own remedy."""
    paths = list(keys)
    for path in paths:
        if is_locked(path) and not _held(path, agent or ()):
            cause = f"permission denied for {where.user}; key {path} is locked by a passphrase"
            start = "" if agent is not None else 'eval "$(ssh-agent)" && '
            return TransportError("locked-key", host, action, cause, f"{start}ssh-add {path}, then retry")
    tried = ", ".join(map(str, paths)) or "no key file"
    held = "no agent" if agent is None else f"{len(agent)} keys of the agent"
    cause = f"permission denied for {where.user} (tried {tried}; {held})"
    return TransportError("auth", host, action, cause, f"check with: {where.ssh()}")


def _held(path: Path, agent: Sequence[bytes]) -> bool:
    try:
        return asyncssh.read_public_key(path.with_name(path.name + ".pub")).public_data in agent
    except (OSError, ValueError):
        return False


def connecting(
    error: BaseException, host: str, where: Where, keys: HostKeys, reached: bool, limit: float
) -> TransportError:
    """Why a connection did not come up. reached: the TCP connection (or the jump's channel) had been made."""
    action = f"connect to {where.label}"
    look = f"try: {where.ssh()}"
    if isinstance(error, TransportError):
        return error
    if isinstance(error, KnownHostsError):
        return TransportError("config", host, action, str(error), "correct that line")
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return keys.problem(host, action, where, "revoked" in str(error))
    if isinstance(error, asyncssh.KeyExchangeFailed) and "host key" in str(error).lower():
        return keys.problem(host, action, where, False)
    if isinstance(error, TimeoutError):
        cause = "connected, but sshd does not answer" if reached else "connect timed out"
        return TransportError("timeout", host, action, f"{cause} within {limit:g} s", "is the host up?")
    if isinstance(error, ConnectionRefusedError):
        return TransportError("refused", host, action, "connection refused", "is sshd running there?")
    if isinstance(error, socket.gaierror):
        return TransportError("resolve", host, action, "no such host name", "correct `address` in the fleet file")
    if isinstance(error, asyncssh.ChannelOpenError):
        return TransportError("refused", host, action, f"the jump host cannot reach it: {error.reason}", look)
    if isinstance(error, asyncssh.DisconnectError) and "too many authentication failures" in error.reason.lower():
        remedy = f"set `identity:` and `IdentitiesOnly yes` for it in ~/.ssh/config; {look}"
        return TransportError("auth", host, action, "the agent holds more keys than the server lets us try", remedy)
    if isinstance(error, (asyncssh.ConfigParseError, asyncssh.KeyImportError)):
        return TransportError("config", host, action, str(error), "correct the ssh configuration")
    if isinstance(error, FileNotFoundError):
        return TransportError("config", host, action, f"{error.filename}: not found", "correct the fleet file")
    if isinstance(error, asyncssh.DisconnectError):
        return TransportError("lost", host, action, error.reason or "connection lost", look)
    if isinstance(error, OSError):
        return TransportError("refused", host, action, error.strerror or str(error), look)
    return TransportError("config", host, action, str(error) or type(error).__name__, look)


def session(error: BaseException, host: str, word: str) -> TransportError:
    """Why a command could not be started on a connection that is up."""
    # OpenSSH's answer to one session too many is "open failed"; that of a closing connection has another reason.
    at_limit = isinstance(error, asyncssh.ChannelOpenError) and error.reason in ("", "open failed")
    if isinstance(error, asyncssh.ChannelOpenError) and (at_limit or error.code != asyncssh.OPEN_CONNECT_FAILED):
        cause = f"the server opens no further session ({error.reason or 'refused'})"
        return TransportError("refused", host, word, cause, "MaxSessions in its sshd_config must be at least 4")
    return lost(host, word, error)


def lost(host: str, action: str, error: BaseException | None = None) -> TransportError:
    """The connection went away."""
    cause = "connection lost"
    reason = str(getattr(error, "reason", "") or "")
    if reason and reason.lower() != cause:
        cause += f" ({reason})"
    return TransportError("lost", host, action, cause, "it reconnects by itself")


def forward(error: BaseException, host: str, address: str, port: int) -> TransportError:
    """Why a direct-tcpip channel did not open."""
    action = f"connect to {address}:{port}"
    if isinstance(error, asyncssh.ChannelOpenError):
        if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
            return TransportError(
                "no-forwarding", host, action, "the server forbids forwarding", "the watcher on the host asks instead"
            )
        if error.code == asyncssh.OPEN_CONNECT_FAILED:
            return TransportError("refused", host, action, "connection refused", "is it serving?")
    return lost(host, action, error)
