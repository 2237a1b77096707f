"""Two hosts in this process: reached by SSH as real ones are, rebooted, cut, and gone without a trace."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
import textwrap
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import asyncssh
import pytest

from ddtree_console.demo.host import SandboxHost
from ddtree_console.demo.sandbox import Sandbox
from tests.demo.helpers import alive, ok, show, unit, until


def connect(box: Sandbox, name: str = "h1") -> AbstractAsyncContextManager[asyncssh.SSHClientConnection]:
    """A connection as the console makes it."""
    host = next(h for h in box.fleet.hosts if h.name == name)
    return asyncssh.connect(
        host.address,
        host.port,
        username=host.user or "root",
        client_keys=[host.identity],
        known_hosts=host.known_hosts,
        config=None,
    )


async def test_a_command_gives_its_bytes_and_its_status(box: Sandbox) -> None:
    async with connect(box) as connection:
        program = b"import os; os.write(1, bytes([255])); os.write(2, b'said'); raise SystemExit(7)"
        done = await connection.run("python3 -I -B -", input=program, encoding=None)
        assert (done.exit_status, done.stdout, done.stderr) == (7, b"\xff", b"said")
        done = await connection.run("cat", input=b"\xff\x00\n" * 100_000, encoding=None)
        assert done.stdout == b"\xff\x00\n" * 100_000
        assert (await connection.run("sudo -n systemctl is-system-running")).stdout == "running\n"


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("echo a; echo b", 126, "a remote command holds only words"),
        ("cat $HOME", 126, "a remote command holds only words"),
        ("nonesuch", 127, "No such file or directory"),
        ("", 126, "no shell here"),
    ],
)
async def test_no_shell_reads_a_command(box: Sandbox, command: str, status: int, said: str) -> None:
    async with connect(box) as connection:
        done = await connection.run(command or None)
        assert done.exit_status == status
        assert said in str(done.stderr)


async def test_another_key_is_refused(box: Sandbox) -> None:
    host = box.fleet.hosts[0]
    with pytest.raises(asyncssh.PermissionDenied):
        await asyncssh.connect(
            host.address,
            host.port,
            username="root",
            client_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            known_hosts=host.known_hosts,
            config=None,
        )


async def test_forwarding_goes_to_loopback_only(box: Sandbox) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with connect(box) as connection:
        reader, writer = await connection.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_connection("192.0.2.1", 80)
    server.close()


async def test_a_command_reads_end_of_file_when_its_connection_is_lost(box: Sandbox, host: SandboxHost) -> None:
    async with connect(box) as connection:
        await connection.create_process("cat")
        await until(lambda: host.ssh.running)
        pid = host.ssh.running[0].process.pid
        assert alive(pid)
        connection.abort()
    await until(lambda: not alive(pid))


async def test_reboot_brings_a_new_boot_an_empty_run_and_enabled_units(box: Sandbox, host: SandboxHost) -> None:
    unit(host, "on", "exec sleep 60")
    unit(host, "off", "exec sleep 60")
    await ok(host, "systemctl enable on && systemctl start on off")
    host.write("/run/systemd/system.control/on.service", "[Service]\nExecStart=/bin/sleep 61\n")
    boot = host.path("/boot_id").read_text()
    pid = int((await show(host, "off", "MainPID"))["MainPID"])
    async with connect(box) as connection:
        done = await connection.run("reboot")
        assert done.exit_status in (0, None, -1)
        await asyncio.wait_for(connection.wait_closed(), 5)
    await until(lambda: host.path("/boot_id").read_text() != boot and host.ssh.listening)
    assert not alive(pid)
    assert not host.path("/run/systemd/system.control").exists()
    async with connect(box) as connection:
        assert (await connection.run("systemctl is-active on off")).stdout == "active\ninactive\n"
        assert (await connection.run("journalctl -u off -o cat -n 1")).stdout == "Stopped off.service - Unit off.\n"


async def test_stop_posts_see_a_system_that_is_stopping(host: SandboxHost) -> None:
    unit(host, "x", "exec sleep 60", "ExecStopPost=-systemctl is-system-running")
    await ok(host, "systemctl start x")
    await host.reboot()
    assert "stopping" in host.journal("x.service")


async def test_power_loss_kills_without_a_word(box: Sandbox, host: SandboxHost) -> None:
    unit(host, "x", "trap 'echo asked' TERM; while :; do sleep 0.1; done", "ExecStopPost=/bin/echo post")
    await ok(host, "systemctl enable x && systemctl start x")
    first = await show(host, "x", "MainPID", "InvocationID")
    async with connect(box) as connection:
        await host.power_loss()
        await asyncio.wait_for(connection.wait_closed(), 5)
    assert not alive(int(first["MainPID"]))
    assert not {"asked", "post"} & set(host.journal("x.service"))
    second = await show(host, "x", "ActiveState", "InvocationID")
    assert second["ActiveState"] == "active"
    assert second["InvocationID"] != first["InvocationID"]


async def test_nothing_outside_the_root_is_named_in_roots(host: SandboxHost) -> None:
    roots = json.loads(host.roots_file.read_text())
    moved = {name: path for name, path in roots.items() if name not in ("proc", "nvml")}
    assert set(moved) == {"etc", "run", "var", "opt", "cgroup", "boot_id"}
    assert all(Path(path).is_relative_to(host.root) for path in moved.values())
    assert (roots["proc"], roots["nvml"]) == ("/proc", False)
    assert host.machine.base_env["PATH"] == str(host.root / "bin")


async def test_the_end_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    root = tmp_path / "box"
    async with Sandbox(root, hosts=("h1",), prepared=False, remove=True) as box:
        host = box.host("h1")
        unit(host, "x", "trap '' TERM HUP; sleep 60")
        await ok(host, "systemctl start x")
        pid = int((await show(host, "x", "MainPID"))["MainPID"])
    assert not alive(pid)
    assert not root.exists()


async def test_sigkill_of_the_demo_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    root = tmp_path / "box"
    script = f"""
        import asyncio
        from pathlib import Path
        from ddtree_console.demo.sandbox import Sandbox

        async def main() -> None:
            async with Sandbox(Path({str(root)!r}), hosts=("h1",), prepared=False, remove=True) as box:
                host = box.host("h1")
                host.write("/etc/systemd/system/x.service",
                    "[Service]\\nExecStart=/bin/sh -c 'trap \\"\\" TERM HUP INT; sleep 61 & sleep 62'\\n")
                await host.exec("systemctl start x")
                await host.ssh.start(["sleep", "63"])
                await asyncio.sleep(0.1)
                print(" ".join(map(str, host.machine.tracker.pids("x.service"))), flush=True)
                await asyncio.sleep(60)

        asyncio.run(main())
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(script), stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert process.stdout
    pids = [int(word) for word in (await process.stdout.readline()).split()]
    assert len(pids) >= 2
    assert all(alive(pid) for pid in pids)
    # To the whole group, as a terminal's kill would: the guard is in none of them.
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    await until(lambda: not any(alive(pid) for pid in pids) and not root.exists())


async def test_a_deep_root_is_no_obstacle_for_the_socket(tmp_path: Path) -> None:
    root = tmp_path / ("d" * 90) / ("e" * 90)
    async with Sandbox(root, hosts=("h1",), prepared=False) as box:
        assert (
            await ok(box.host("h1"), f"cd {shlex.quote(str(tmp_path))} && systemctl is-system-running") == "running\n"
        )
