"""Each way in which a connection does not come up, told apart, with the command for another shell."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest

from ddtree_console.domain.spec import Fleet, Host
from ddtree_console.transport import ssh
from ddtree_console.transport.base import TransportError
from ddtree_console.transport.opener import jump_of, opener
from tests.transport.conftest import SshBox


async def refused(host: Host, jump: Host | None = None) -> TransportError:
    """The error of a connection that must not come up."""
    transport = ssh.SshTransport(host, jump)
    with pytest.raises(TransportError) as caught:
        await transport.connect()
    assert transport.closed.is_set()
    return caught.value


async def keygen(*words: str) -> None:
    """Runs ssh-keygen."""
    quiet = subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec("ssh-keygen", "-q", *words, stdout=quiet, stderr=quiet)
    assert await process.wait() == 0


async def test_up(box: SshBox) -> None:
    transport = ssh.SshTransport(box.host())
    await transport.connect()
    assert (await transport.run(["true"])).status == 0
    await transport.close()
    await transport.close()


async def test_an_unknown_key_is_refused_with_its_fingerprint_and_nothing_is_written(box: SshBox) -> None:
    box.known_hosts.unlink()
    error = await refused(box.host())
    assert error.kind == "unknown-key"
    assert box.host_key.get_fingerprint() in error.cause
    assert f"ssh-keyscan -t ed25519 -p {box.port} 127.0.0.1 >> {box.known_hosts}" in error.next_step
    assert not box.known_hosts.exists()


async def test_the_command_that_is_named_makes_it_known(box: SshBox) -> None:
    box.known_hosts.unlink()
    command = (await refused(box.host())).next_step.rpartition("then ")[2]
    keyscan = await asyncio.create_subprocess_shell(command, stderr=subprocess.DEVNULL)
    assert await keyscan.wait() == 0
    await test_up(box)


async def test_a_changed_key(box: SshBox) -> None:
    box.know(asyncssh.generate_private_key("ssh-ed25519"))
    error = await refused(box.host())
    assert error.kind == "changed-key"
    assert box.host_key.get_fingerprint() in error.cause
    assert f"ssh-keygen -f {box.known_hosts} -R '[127.0.0.1]:{box.port}'" in error.next_step


async def test_a_key_of_another_kind_than_the_known_one(box: SshBox) -> None:
    box.know(asyncssh.generate_private_key("ecdsa-sha2-nistp256"))
    assert (await refused(box.host())).kind == "changed-key"


async def test_a_revoked_key(box: SshBox) -> None:
    box.know(box.host_key, f"@revoked [127.0.0.1]:{box.port}")
    error = await refused(box.host())
    assert (error.kind, "REVOKED" in error.cause) == ("changed-key", True)


async def test_the_key_of_another_port_says_nothing_of_this_one(box: SshBox) -> None:
    box.know(asyncssh.generate_private_key("ssh-ed25519"), "127.0.0.1")
    assert (await refused(box.host())).kind == "unknown-key"
    box.know(box.host_key, "127.0.0.1")
    await test_up(box)


async def test_hashed_and_user_known_hosts(box: SshBox) -> None:
    await keygen("-H", "-f", str(box.known_hosts))
    assert "127.0.0.1" not in box.known_hosts.read_text()
    await test_up(box)
    box.known_hosts.rename(Path.home() / ".ssh" / "known_hosts")
    await test_up(box)


async def test_no_setting_of_ssh_switches_the_check_off(box: SshBox) -> None:
    box.known_hosts.unlink()
    config = Path.home() / ".ssh" / "config"
    for file in ("none", "/dev/null"):
        config.write_text(f"Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile {file}\n")
        assert (await refused(box.host())).kind == "unknown-key"


async def test_a_broken_known_hosts_file_is_named(box: SshBox) -> None:
    box.known_hosts.write_text("one-word\n")
    error = await refused(box.host())
    assert (error.kind, str(box.known_hosts) in error.cause) == ("config", True)


async def test_a_key_that_the_server_does_not_take(box: SshBox) -> None:
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(box.folder / "other")
    error = await refused(box.host(identity=str(box.folder / "other")))
    assert error.kind == "auth"
    assert "permission denied for ops" in error.cause
    assert f"ssh -p {box.port} ops@127.0.0.1" in error.next_step


async def test_a_locked_key(box: SshBox) -> None:
    locked = box.folder / "locked"
    await keygen("-t", "ed25519", "-N", "secret", "-f", str(locked))
    error = await refused(box.host(identity=str(locked)))
    assert error.kind == "locked-key"
    assert f"ssh-add {locked}" in error.next_step


async def test_a_locked_key_that_the_agent_holds_is_no_obstacle(box: SshBox, monkeypatch: pytest.MonkeyPatch) -> None:
    socket = box.folder / "agent"
    agent = await asyncio.create_subprocess_exec("ssh-agent", "-D", "-a", str(socket), stdout=subprocess.PIPE)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        assert agent.stdout is not None
        await agent.stdout.readline()  # it says where it listens once it does
        add = await asyncio.create_subprocess_exec("ssh-add", "-q", str(box.identity))
        assert await add.wait() == 0
        await keygen("-p", "-N", "secret", "-f", str(box.identity))
        await test_up(box)
    finally:
        agent.terminate()
        await agent.wait()


async def test_a_dead_agent_is_no_obstacle(box: SshBox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(box.folder / "no-agent"))
    await test_up(box)


async def test_a_key_file_that_is_not_there(box: SshBox) -> None:
    error = await refused(box.host(identity="/no/such/key"))
    assert (error.kind, "/no/such/key" in error.cause) == ("config", True)


async def test_connection_refused(box: SshBox) -> None:
    await box.stop()
    assert (await refused(box.host())).kind == "refused"


async def test_a_name_that_does_not_resolve(box: SshBox) -> None:
    host = box.host()
    error = await refused(Host("x", "no-such-host.invalid", host.port, "ops", known_hosts=host.known_hosts))
    assert error.kind == "resolve"


async def test_a_frozen_sshd(box: SshBox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "LIMIT", 0.3)
    mute = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    began = time.monotonic()
    error = await refused(box.host(port=mute.sockets[0].getsockname()[1]))
    assert (error.kind, "sshd does not answer" in error.cause) == ("timeout", True)
    assert time.monotonic() - began < 2
    mute.close()


async def test_what_is_no_sshd(box: SshBox) -> None:
    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(web, "127.0.0.1", 0)
    error = await refused(box.host(port=server.sockets[0].getsockname()[1]))
    assert error.kind in ("lost", "refused")
    server.close()


async def test_a_silent_network_is_noticed(box: SshBox) -> None:
    pipes: list[asyncio.Task[None]] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)

    async def cable(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", box.port)
        pipes.extend(asyncio.ensure_future(copy(*p)) for p in ((reader, far_writer), (far_reader, writer)))

    server = await asyncio.start_server(cable, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    box.know(box.host_key, f"[127.0.0.1]:{port}")
    transport = ssh.SshTransport(box.host(port=port), keepalive=0.2)
    await transport.connect()
    process = await transport.start(["cat"])
    for pipe in pipes:
        pipe.cancel()  # from here on nothing passes and nothing is closed
    async with asyncio.timeout(5):
        assert [line async for line in process.lines()] == []
        assert (await process.wait())[0] is None
        await transport.closed.wait()
    await transport.close()
    server.close()


@contextlib.asynccontextmanager
async def second_box(folder: Path) -> AsyncIterator[SshBox]:
    """Another server, with keys of its own."""
    folder.mkdir()
    other = SshBox(folder)
    await other.start()
    yield other
    await other.stop()


async def test_through_a_jump(box: SshBox, tmp_path: Path) -> None:
    async with second_box(tmp_path / "second") as far:
        transport = ssh.SshTransport(far.host(), box.host())
        await transport.connect()
        assert len(box.connections) == 1
        assert (await transport.run(["true"])).status == 0
        box.connections[0].abort()
        async with asyncio.timeout(5):
            await transport.closed.wait()
        await transport.close()


async def test_the_jump_is_as_strict(box: SshBox, tmp_path: Path) -> None:
    async with second_box(tmp_path / "second") as far:
        box.know(asyncssh.generate_private_key("ssh-ed25519"))
        error = await refused(far.host(), box.host())
        assert error.kind == "changed-key"
        assert f"-R '[127.0.0.1]:{box.port}'" in error.next_step
        box.know(box.host_key)
        far.known_hosts.unlink()
        error = await refused(far.host(), box.host())
        assert error.kind == "unknown-key"
        # ssh-keyscan cannot go through a jump
        assert f"ssh -J ops@127.0.0.1:{box.port} -p {far.port} ops@127.0.0.1" in error.next_step


async def test_a_jump_of_the_users_configuration(box: SshBox, tmp_path: Path) -> None:
    async with second_box(tmp_path / "second") as far:
        config = Path.home() / ".ssh" / "config"
        config.write_text(
            f"Host far\n  HostName 127.0.0.1\n  Port {far.port}\n  User ops\n  IdentityFile {far.identity}\n"
            f"  ProxyJump near\nHost near\n  HostName 127.0.0.1\n  Port {box.port}\n  User ops\n"
            f"  IdentityFile {box.identity}\n"
        )
        known = Path.home() / ".ssh" / "known_hosts"
        known.write_text(box.known_hosts.read_text() + far.known_hosts.read_text())
        transport = ssh.SshTransport(Host("far", "far"))
        await transport.connect()
        assert len(box.connections) == len(far.connections) == 1
        await transport.close()
        known.write_text(far.known_hosts.read_text())
        assert (await refused(Host("far", "far"))).kind == "unknown-key"


async def test_a_jump_that_cannot_reach_the_host(box: SshBox) -> None:
    free = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = free.sockets[0].getsockname()[1]
    free.close()
    await free.wait_closed()
    assert (await refused(box.host(port=port), box.host())).kind == "refused"


def test_jumps_of_a_fleet() -> None:
    gate = Host("gate", "gate.example", 2222, "hop")
    fleet = Fleet("f", (gate, Host("here", local=True), Host("a", "a.example", jump="gate", known_hosts="/kh")))
    found = jump_of(fleet, fleet.hosts[2])
    assert found is not None
    assert (found.address, found.port, found.user, found.known_hosts) == ("gate.example", 2222, "hop", "/kh")
    inline = jump_of(fleet, Host("b", "b", jump="joe@gate2.example:2200", identity="/k"))
    assert inline is not None
    assert (inline.address, inline.port, inline.user, inline.identity) == ("gate2.example", 2200, "joe", "/k")
    assert jump_of(fleet, gate) is None
    with pytest.raises(TransportError) as caught:
        jump_of(fleet, Host("c", "c", jump="here"))
    assert caught.value.kind == "config"
    assert type(opener(fleet)(fleet.hosts[1])).__name__ == "LocalTransport"
    assert type(opener(fleet)(fleet.hosts[2])).__name__ == "SshTransport"
