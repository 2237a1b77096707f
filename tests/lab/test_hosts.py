"""The lab keeps its promises: what boots is a real host, and each fault is what a client of a real one would see."""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
import time
import urllib.request
from pathlib import Path

import asyncssh
import pytest

from tests.lab.fixtures import Hosts
from tests.lab.host import Host

pytestmark = pytest.mark.lab
HERE = Path(__file__).resolve().parent
WEB = "[Service]\nExecStart=/opt/lab/demo_http.py 8080\nRestart=on-failure\nRestartSec=100ms\n"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


async def connect(host: Host, **options: float) -> asyncssh.SSHClientConnection:
    """A connection as root, as strict as the product's."""
    return await asyncssh.connect(
        host.ip,
        username="root",
        client_keys=[str(host.key)],
        known_hosts=str(host.known_hosts),
        config=None,
        connect_timeout=5,
        login_timeout=5,
        **options,
    )


def give_web(host: Host) -> None:
    """A unit `web` that serves HTTP on port 8080."""
    host.write("/opt/lab/demo_http.py", (HERE / "demo_http.py").read_bytes(), 0o755)
    host.write("/etc/systemd/system/web.service", WEB)


def fetch(url: str) -> object:
    """JSON at that address."""
    with urllib.request.urlopen(url, timeout=3) as answer:
        return json.load(answer)


async def test_a_unit_starts_logs_and_serves(hosts: Hosts) -> None:
    host = hosts["h1"]
    give_web(host)
    async with await connect(host) as connection:
        started = "systemctl daemon-reload && systemctl start web && systemctl show web -p ActiveState,SubState"
        done = await connection.run(started, check=True)
        assert set(str(done.stdout).split()) == {"ActiveState=active", "SubState=running"}
        async with connection.create_process("journalctl -u web -o json -f -n 100", encoding=None) as follower:
            async with asyncio.timeout(5):
                while json.loads(await follower.stdout.readline())["MESSAGE"] != "listening on 8080":
                    pass
            follower.terminate()
        forward = await connection.forward_local_port("127.0.0.1", 0, "127.0.0.1", 8080)
        for address in (f"127.0.0.1:{forward.get_port()}", f"{host.ip}:8080"):
            assert await asyncio.to_thread(fetch, f"http://{address}/health") == {"status": "ok"}


def test_a_host_is_its_own(hosts: Hosts) -> None:
    one, other = hosts.look("h1"), hosts.look("h2")
    assert one.ssh("systemctl is-system-running").stdout == "running\n"
    assert one.ssh(f"cat {BOOT_ID}").stdout != other.ssh(f"cat {BOOT_ID}").stdout
    assert float(one.ssh("cat /proc/uptime").stdout.split()[0]) < 600
    assert one.ssh("cat /etc/machine-id").stdout != Path("/etc/machine-id").read_text()
    assert one.ssh("sysctl -w kernel.panic=9", check=False).returncode != 0
    assert one.ssh("command -v python3 && python3 -c 'import sys; assert sys.version_info >= (3, 9)'").stdout


@pytest.mark.parametrize(("user", "status"), [("ops", 1), ("admin", 0), ("pwops", 1)])
def test_sudo_by_user(hosts: Hosts, user: str, status: int) -> None:
    host = hosts.look("h1")
    assert host.ssh("sudo -n id -u", user=user, check=False).returncode == status
    assert host.ssh("systemctl show ssh -p ActiveState", user=user).stdout == "ActiveState=active\n"


def test_a_password_is_what_sudo_wants_of_pwops(hosts: Hosts) -> None:
    host = hosts.look("h1")
    assert host.ssh("sudo -S id -u", user="pwops", stdin="lab\n").stdout == "0\n"
    assert host.ssh("sudo -S id -u", user="ops", stdin="lab\n", check=False).returncode == 1


async def test_a_reboot_ends_the_session_and_changes_the_boot(hosts: Hosts) -> None:
    host = hosts["h1"]
    async with await connect(host) as connection:
        before = (await connection.run(f"cat {BOOT_ID}")).stdout
        await connection.create_process("sleep 60")
        await asyncio.to_thread(host.reboot)
        await asyncio.wait_for(connection.wait_closed(), 5)
    async with await connect(host) as connection:
        assert (await connection.run(f"cat {BOOT_ID}")).stdout != before
        boots = await connection.run("journalctl --list-boots --no-pager | grep -c '[0-9a-f]\\{32\\}'")
        assert boots.stdout == "2\n"


def test_an_enabled_unit_starts_at_boot(hosts: Hosts) -> None:
    host = hosts["h1"]
    give_web(host)
    host.write("/etc/systemd/system/web.service", WEB + "[Install]\nWantedBy=multi-user.target\n")
    host.exec("systemctl daemon-reload; systemctl enable -q web")
    host.reboot()
    assert host.ssh("systemctl is-active web").stdout == "active\n"


async def test_silence_is_noticed_by_keepalive(hosts: Hosts) -> None:
    host = hosts["h2"]
    async with await connect(host, keepalive_interval=0.5, keepalive_count_max=2) as connection:
        host.drop()
        began = time.monotonic()
        await asyncio.wait_for(connection.wait_closed(), 10)
        assert 0.4 < time.monotonic() - began < 4
        host.drop(False)
    host.wait_ready()


async def test_a_slow_wire_delays_a_login(hosts: Hosts) -> None:
    host = hosts["h2"]
    host.wire(delay_ms=80)
    began = time.monotonic()
    async with await connect(host) as connection:
        assert (await connection.run("echo hi")).stdout == "hi\n"
    assert time.monotonic() - began > 0.8


def test_refused_cut_and_frozen(hosts: Hosts) -> None:
    host = hosts["h1"]
    host.refuse(22)
    assert "refused" in host.ssh("true", check=False).stderr
    host.refuse(22, False)
    host.link_down()
    with pytest.raises(OSError):
        socket.create_connection((host.ip, 22), 0.7)
    host.link_up()
    host.wait_ready()
    host.freeze_sshd()
    frozen = host.ssh("true", check=False)
    host.freeze_sshd(False)
    assert frozen.returncode == 255
    assert "timed out" in frozen.stderr
    assert host.ssh("echo hi").stdout == "hi\n"


def test_a_new_host_key_is_refused(hosts: Hosts) -> None:
    host = hosts["h1"]
    host.new_host_key()
    done = host.ssh("true", check=False)
    assert done.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr


async def test_max_sessions(hosts: Hosts) -> None:
    host = hosts["h1"]
    await asyncio.to_thread(host.sshd, "MaxSessions 4")
    async with await connect(host) as connection:
        open_ones = [await connection.create_process("sleep 60") for _ in range(4)]
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.create_process("true")
        for process in open_ones:
            process.close()


def test_power_loss_keeps_the_disk(hosts: Hosts) -> None:
    host = hosts["h1"]
    give_web(host)
    host.crash()
    assert host.pid == 0
    host.power_on()
    assert host.ssh("systemctl start web; systemctl is-active web").stdout == "active\n"


def test_the_clock_jumps_live(hosts: Hosts) -> None:
    host = hosts["h1"]
    host.skew(0)
    host.reboot()  # PID 1 and journald follow from now on
    for seconds in (3600, -600):
        host.skew(seconds)
        assert abs(int(host.ssh("date +%s").stdout) - time.time() - seconds) < 5
        host.exec(f"logger -t clock -- jumped {seconds}")
    host.exec("journalctl --sync")
    stamps = host.exec("journalctl -t clock -o json --output-fields=MESSAGE --no-pager").stdout.splitlines()
    offsets = [int(json.loads(line)["__REALTIME_TIMESTAMP"]) / 1e6 - time.time() for line in stamps]
    assert sorted(round(offset / 600) for offset in offsets) == [-1, 6]


def test_a_full_disk_and_a_read_only_etc(hosts: Hosts) -> None:
    host = hosts["h1"]
    write = "printf x > /etc/systemd/system/x.service"
    host.fill_disk()
    assert "No space left" in host.ssh(write, check=False).stderr
    host.free_disk()
    host.read_only("/etc")
    assert "Read-only file system" in host.ssh(write, check=False).stderr
    host.read_only("/etc", False)
    host.ssh(write)


@pytest.mark.parametrize("turn", range(3))
def test_each_test_gets_a_new_host(hosts: Hosts, turn: int) -> None:
    host = hosts["h1"]
    assert not host.path("/etc/systemd/system/web.service").exists(), turn
    give_web(host)


def test_nothing_of_the_machine_is_on_a_host(hosts: Hosts) -> None:
    host = hosts.look("h1")
    probe = Path("/tmp/ddtree-lab-probe")
    probe.write_text("here")
    try:
        assert host.ssh(f"cat {shlex.quote(str(probe))}", check=False).returncode == 1
    finally:
        probe.unlink()
    assert host.ssh("ls /home; ls -A /root").stdout.split() == ["admin", "ops", "pwops", ".ssh"]
