"""Getting the host code started: command lines, the installer's text, and what to do when a start failed."""

from __future__ import annotations

import base64
import getpass
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ddtree_console.domain.spec import Host
from ddtree_console.transport import archive, installer, python_of
from ddtree_console.transport.base import Transport, TransportError

CACHE = ".cache/ddtree-console/bin"

TOO_OLD = "is too old: 3.9 or newer is needed"

# Any Python parses this; only one that is new enough goes on to the installer.
HEAD = f"""import sys
if sys.version_info < (3, 9):
    sys.stdout.write('{{"error": "python %d.%d {TOO_OLD}", "old": true}}\\n' % sys.version_info[:2])
else:
    import base64, zlib
    def part(text):
        return zlib.decompress(base64.b64decode(text))
    names = {{"__name__": "installer"}}
"""


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()


class Code(Protocol):
    """Host code: an Archive, or one that is made when a host lacks it."""

    @property
    def hash(self) -> str:
        """Of its bytes."""
        ...

    @property
    def data(self) -> bytes:
        """The archive."""
        ...


class Later:
    """Host code of which only the hash is kept: most hosts have it, and its megabytes would stay in memory."""

    def __init__(self, build: Callable[[], archive.Archive]) -> None:
        self._build = build
        self.hash = build().hash

    @property
    def data(self) -> bytes:
        """Made again. TransportError where the console's own files were changed since it began."""
        made = self._build()
        if made.hash != self.hash:
            cause = "the console's own files changed since it was started"
            raise TransportError("config", "console", "install the host code", cause, "start the console again")
        return made.data


def installer_text(code: Code, roots: str) -> bytes:
    """The whole installer with the archive inside, for the stdin of `python3 -I -`; about 100 kB."""
    source = Path(installer.__file__).read_bytes()
    lines = [
        HEAD,
        f'    exec(compile(part("{_packed(source)}"), "installer", "exec"), names)\n',
        f'    names["main"](part("{_packed(code.data)}"), {code.hash!r}, {roots!r})\n',
    ]
    return "".join(lines).encode("ascii")


def var_of(roots: str | None) -> str:
    """VAR of the host. A roots file (demo, tests) is on this machine too; elsewhere the installer reads it."""
    try:
        return installer.roots_of(roots or "")[0]
    except (OSError, ValueError):
        return installer.VAR


class HostCode:
    """How the host code is started on one host: services' Launcher. One a connection.

    Starts with what is likely (root or `sudo -n`, python3, code in its place) and mends one thing after each failure.
    """

    def __init__(self, host: Host, code: Code) -> None:
        self._host, self._code = host, code
        login = "root" if host.local and os.geteuid() == 0 else host.user or getpass.getuser()
        self._sudo = login != "root"
        self._python = host.python or "python3"
        self._pythons_left: list[str] | None = None
        self._where = f"{var_of(host.roots)}/bin/{code.hash}"
        self._tried: set[str] = set()
        self.privileged = True
        """whether commands run as root, as far as is known; the hello message says it for certain."""
        self.why = ""
        """why they do not."""

    def _prefix(self) -> list[str]:
        return ["sudo", "-n"] if self._sudo else []

    def argv(self, command: str, *args: str) -> list[str]:
        """The command line of a host command."""
        roots = [f"--roots={self._host.roots}"] if self._host.roots else []
        return [*self._prefix(), self._python, "-I", "-B", self._where, *roots, command, *args]

    async def repair(self, transport: Transport, status: int, stderr: bytes) -> None:
        """After a command that ended before its first line: mends what it lacked; TransportError when nothing helps."""
        said = stderr.decode("utf-8", "replace").strip()
        last = said.splitlines()[-1] if said else f"exit status {status}"
        if self._sudo and sudo_refused(said, self._python):
            self._once("sudo", last)
            self._drop_sudo(said)
        elif TOO_OLD in said or "Unknown option: -I" in said:
            await self._other_python(transport, last)
        elif python_missing(status, said, self._python):
            await self._other_python(transport, f"{self._python} is not there")
        elif code_missing(said, self._where):
            self._once(f"install at {self._where}", last)
            await self._install(transport)
        else:
            raise TransportError("host", self._host.name, "start the host code", last, "see `check`")

    def _once(self, what: str, last: str) -> None:
        key = f"{what} {self._python} {self._sudo}"
        if key in self._tried:
            raise TransportError("config", self._host.name, what, f"did not help: {last}", "see `check`")
        self._tried.add(key)

    def _drop_sudo(self, said: str) -> None:
        """Without sudo: as whoever we are. Where it is not installed we may be root all the same: hello says so."""
        self._sudo = False
        first = said.splitlines()[0]
        if not first.startswith("sudo:"):
            self.why = "sudo is not installed"
            return
        self.privileged = False
        self.why = f"sudo refused ({first.removeprefix('sudo:').strip()})"
        self._where = f"{CACHE}/{self._code.hash}"

    async def _other_python(self, transport: Transport, why: str) -> None:
        """The next interpreter of a unit that only root can change."""
        if self._pythons_left is None:
            units = [service.unit for service in self._host.services]
            self._pythons_left = await python_of.candidates(transport, units, self._python)
        if not self._pythons_left:
            step = "install python3 (3.9 or newer) there, or set `python:` for the host in the fleet file"
            raise TransportError("config", self._host.name, "start python3", why, step)
        self._python = self._pythons_left.pop(0)

    async def _install(self, transport: Transport) -> None:
        text = installer_text(self._code, self._host.roots or "")
        done = await transport.run([*self._prefix(), self._python, "-I", "-"], text, timeout=60.0)
        answer = _answer(done.stdout)
        if answer.get("old"):
            await self._other_python(transport, str(answer.get("error")))
            return
        if "installed" in answer:
            self._where = str(answer["where"])
            return
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        cause = str(answer.get("error") or (said[-1] if said else f"exit status {done.status}"))
        if done.status is None:
            raise TransportError("lost", self._host.name, "install the host code", "connection lost", "it reconnects")
        step = str(answer.get("next") or "see `check`")
        raise TransportError("host", self._host.name, "install the host code", cause, step)


def _answer(out: bytes) -> dict[str, Any]:
    for line in out.splitlines():
        try:
            raw = json.loads(line)
        except ValueError:
            continue
        if isinstance(raw, dict):
            return raw
    return {}


def sudo_refused(said: str, python: str) -> bool:
    """Whether it was sudo that said no, or that is not there; `sudo: python3: command not found` is neither."""
    first = said.splitlines()[0] if said else ""
    if first.startswith("sudo:"):
        return python not in first
    return "sudo" in first and "not found" in first


def python_missing(status: int, said: str, python: str) -> bool:
    """Whether the shell (or sudo) did not find the interpreter."""
    absent = "not found" in said or "No such file" in said
    return status in (1, 126, 127) and python in said and absent and "can't open file" not in said


def code_missing(said: str, where: str) -> bool:
    """Whether Python ran and did not find the code."""
    return (
        "can't open file" in said or "can't find '__main__'" in said or f"No such file or directory: '{where}" in said
    )


Rows = Sequence[Mapping[str, Any]]


def launcher(rules: Rows | Callable[[], Rows] = ()) -> Callable[[Host], HostCode]:
    """A launcher factory; the archive is built at the first host. rules: of findings, or what reads them then."""
    built: list[Later] = []

    def make(host: Host) -> HostCode:
        if not built:
            built.append(Later(lambda: archive.build(rules() if callable(rules) else rules)))
        return HostCode(host, built[0])

    return make
