"""Who listens: real sockets, this process as the unit's, a child as the stranger."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.hostside import sockets
from tests.hostside.support import FakeHost

GROUP = "/system.slice/a.service"


def listen(family: int = socket.AF_INET, address: str = "127.0.0.1") -> socket.socket:
    """A listening socket of this process."""
    sock = socket.socket(family)
    sock.bind((address, 0))
    sock.listen()
    return sock


@pytest.fixture
def foreign_port() -> Iterator[int]:
    """A port on which another process listens."""
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    yield int(child.stdout.readline())
    child.communicate()


@pytest.mark.parametrize(
    ("family", "bound", "shown"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "0.0.0.0"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "::"),
    ],
)
def test_ours_with_its_real_address(host: FakeHost, family: int, bound: str, shown: str) -> None:
    host.cgroup(GROUP, os.getpid())
    with listen(family, bound) as sock:
        found = sockets.listener(host.roots, sock.getsockname()[1], GROUP, os.getpid())
    assert (found.state, found.address, found.pid) == ("ours", shown, os.getpid())
    assert found.command


def test_a_bound_or_connected_socket_is_no_listener(host: FakeHost) -> None:
    with listen() as sock, socket.create_connection(sock.getsockname()) as client:
        assert sockets.listener(host.roots, client.getsockname()[1], GROUP, 0).state == "nobody"


def test_foreign_is_named(host: FakeHost, foreign_port: int) -> None:
    host.cgroup(GROUP, os.getpid())
    found = sockets.listener(host.roots, foreign_port, GROUP, os.getpid())
    assert found.state == "foreign"
    assert found.pid not in (0, os.getpid())
    assert "python" in found.command


def test_without_root_another_users_listener_is_unknown(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    with listen() as sock:
        port = sock.getsockname()[1]
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4242)
        found = sockets.listener(host.roots, port, GROUP, 0)
        assert found.state == "unknown"
        assert "root" in found.why
    assert sockets.listener(host.roots, port, GROUP, 0).state == "nobody"


def test_a_glance_confirms_a_holder_until_it_closes(host: FakeHost) -> None:
    host.cgroup(GROUP, os.getpid())
    with listen() as sock:
        table = sockets.Tables(host.roots).of(0)
        _, holder = sockets.look(host.roots, sock.getsockname()[1], GROUP, table)
        assert holder is not None
        assert holder.still()
    assert not holder.still()


def test_an_address_in_the_kernels_notation() -> None:
    order = sys.byteorder
    assert sockets.address_of(b"%08X" % int.from_bytes(socket.inet_aton("10.1.2.3"), order)) == "10.1.2.3"


@given(st.binary(max_size=300), st.integers(1, 65535))
def test_no_table_breaks_the_parser(junk: bytes, port: int) -> None:
    line = b"  0: 0100007F:%04X 00000000:0000 0A 0:0 0:0 0 " % port
    for found in sockets.listening(junk + b"\n" + line + junk + b"\n" + line + b"0 0 77 1\n", port):
        assert found.port == port
    assert 77 in [s.inode for s in sockets.listening(line + b"0 0 77 1\n", port)]
