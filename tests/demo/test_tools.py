"""The shims' answers and exit statuses, held to systemd 252's."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from ddtree_console.demo.host import SandboxHost
from tests.demo.helpers import ok, show, unit, until


async def test_show_has_systemds_order_and_a_blank_line_between_units(host: SandboxHost) -> None:
    unit(host, "x", "exec sleep 60")
    out = await ok(host, "systemctl show -p SubState,LoadState,MainPID,Id -- x y")
    names = [line.partition("=")[0] for line in out.splitlines()]
    assert names == ["MainPID", "Id", "LoadState", "SubState", "", "MainPID", "Id", "LoadState", "SubState"]
    assert "LoadState=not-found" in out


async def test_an_edit_needs_a_reload_and_a_trial_outranks_the_committed_unit(host: SandboxHost) -> None:
    committed = unit(host, "x", "exec sleep 60")
    await ok(host, "systemctl start x")
    assert await show(host, "x", "NeedDaemonReload") == {"NeedDaemonReload": "no"}
    unit(host, "x", "exec sleep 61")
    assert await show(host, "x", "NeedDaemonReload") == {"NeedDaemonReload": "yes"}
    trial = host.write("/run/systemd/system.control/x.service", committed.read_text())
    assert await show(host, "x", "FragmentPath") == {"FragmentPath": str(committed)}
    before = await show(host, "x", "MainPID", "InvocationID")
    await ok(host, "systemctl daemon-reload")
    assert await show(host, "x", "FragmentPath", "NeedDaemonReload") == {
        "FragmentPath": str(trial),
        "NeedDaemonReload": "no",
    }
    trial.unlink()
    await ok(host, "systemctl daemon-reload")
    assert await show(host, "x", "FragmentPath") == {"FragmentPath": str(committed)}
    assert await show(host, "x", "MainPID", "InvocationID") == before


async def test_drop_ins_add_and_reset(host: SandboxHost) -> None:
    unit(host, "x", "echo base")
    path = host.write("/etc/systemd/system/x.service.d/10.conf", "[Service]\nExecStart=\nExecStart=/bin/echo over\n")
    await ok(host, "systemctl start x")
    await until(lambda: "over" in host.journal("x.service"))
    assert await show(host, "x", "DropInPaths") == {"DropInPaths": str(path)}
    assert "base" not in host.journal("x.service")


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("systemctl start nope", 5, "Failed to start nope.service: Unit nope.service not found."),
        ("systemctl restart nope", 5, "Failed to restart nope.service: Unit nope.service not found."),
        ("systemctl stop nope", 5, "Failed to stop nope.service: Unit nope.service not loaded."),
        ("systemctl enable nope", 1, "Failed to enable unit: Unit file nope.service does not exist."),
        ("systemctl frobnicate", 1, "Unknown command verb frobnicate."),
        ("systemctl show --frob", 1, "unrecognized option '--frob'"),
        ("journalctl --cursor=nonsense", 1, "Failed to seek to cursor: Invalid argument"),
        ("journalctl nonsense", 1, "Failed to add match 'nonsense': Invalid argument"),
        ("systemd-run -p Frob=1 true", 1, "Unknown assignment: Frob=1"),
        ("nvidia-smi -q", 2, "the sandbox answers"),
        ("shutdown -h now", 1, "not in a sandbox host"),
    ],
)
async def test_refusals(host: SandboxHost, command: str, status: int, said: str) -> None:
    done = await host.exec(command)
    assert (done.returncode, said in done.stderr) == (status, True), done


async def test_is_active_and_enablement(host: SandboxHost) -> None:
    unit(host, "x", "exec sleep 60")
    assert (await host.exec("systemctl is-active x")).returncode == 3
    assert (await show(host, "x", "UnitFileState")) == {"UnitFileState": "disabled"}
    await ok(host, "systemctl enable x")
    assert (host.root / "etc/systemd/system/multi-user.target.wants/x.service").is_symlink()
    assert await ok(host, "systemctl is-enabled x") == "enabled\n"
    await ok(host, "systemctl start x")
    assert await ok(host, "systemctl is-active x") == "active\n"
    await ok(host, "systemctl disable x")
    assert (await show(host, "x", "UnitFileState")) == {"UnitFileState": "disabled"}


async def test_no_block_returns_at_once_and_stop_waits(host: SandboxHost) -> None:
    unit(host, "x", "sleep 60", "Type=oneshot\nTimeoutStartSec=infinity")
    began = time.monotonic()
    await ok(host, "systemctl start --no-block x")
    assert time.monotonic() - began < 2
    assert await show(host, "x", "ActiveState") == {"ActiveState": "activating"}
    await ok(host, "systemctl stop x")
    assert (await host.exec("systemctl is-active x")).stdout == "inactive\n"


async def test_a_second_transient_unit_of_the_name_is_refused_and_a_collected_one_is_gone(host: SandboxHost) -> None:
    run = "systemd-run --unit=tx-x.service --collect -p OOMScoreAdjust=-900 -p TimeoutStopSec=30 --no-block"
    first = await host.exec(f"{run} sleep 60")
    assert (first.returncode, first.stderr) == (0, "Running as unit: tx-x.service\n")
    second = await host.exec(f"{run} sleep 60")
    assert second.returncode == 1
    assert second.stderr == (
        "Failed to start transient service unit: Unit tx-x.service was already loaded or has a fragment file.\n"
    )
    await ok(host, "systemctl kill --signal=KILL tx-x.service")
    await until(lambda: "tx-x.service" not in host.machine.units)
    assert await show(host, "tx-x.service", "LoadState") == {"LoadState": "not-found"}
    await ok(host, f"{run} true")


async def test_a_failed_transient_unit_without_collect_refuses_the_next(host: SandboxHost) -> None:
    await ok(host, "systemd-run --unit=t --no-block false")
    await until(lambda: host.machine.units["t.service"].active == "failed")
    assert (await host.exec("systemd-run --unit=t --no-block true")).returncode == 1
    await ok(host, "systemctl reset-failed t")
    await ok(host, "systemd-run --unit=t --no-block true")


async def test_arguments_of_a_transient_unit_round_trip(host: SandboxHost) -> None:
    odd = "a b|%n|$HOME|\\|\"|'|;"
    await ok(host, f"systemd-run --unit=t -p CollectMode=inactive printf '%s\\n' {_shell(odd)}")
    await until(lambda: odd in host.journal("t.service"))


def _shell(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"


async def test_verify_warns_with_the_path_and_returns_0_for_a_misspelt_key(host: SandboxHost) -> None:
    path = host.write("/root/x.service", "[Service]\nExecStart=/bin/true\nTimeoutStopSecs=5\n")
    done = await host.exec(f"systemd-analyze verify --man=no {path}")
    assert done.returncode == 0
    assert done.stderr == f"{path}:3: Unknown key 'TimeoutStopSecs' in section [Service], ignoring.\n"
    path.write_text("[Service]\nExecStart=/nonexistent/x\n")
    done = await host.exec(f"systemd-analyze verify --man=no {path}")
    assert done.returncode == 1
    assert "x.service: Command /nonexistent/x is not executable: No such file or directory" in done.stderr
    path.write_text('[Service]\nExecStart=/bin/echo "a b\n')
    assert (await host.exec(f"systemd-analyze verify --man=no {path}")).returncode == 1
    path.write_text("[Service]\nExecStart=/bin/true\n")
    assert (await host.exec(f"systemd-analyze verify --man=no {path}")).stderr == ""


async def test_sudo_runs_the_command_itself(host: SandboxHost) -> None:
    assert await ok(host, "sudo -n -u root -- systemctl is-system-running") == "running\n"


async def test_nvidia_smi_invents_nothing(host: SandboxHost) -> None:
    query = "nvidia-smi --query-gpu=index,memory.total,memory.used,utilization.gpu --format=csv,noheader,nounits"
    assert await ok(host, query) == "0, 143771, 8, [N/A]\n"
    unit(host, "x", "echo 'Load weight begin. avail mem=139.13 GB'; echo 'avail mem=95.54 GB'; exec sleep 60")
    await ok(host, "systemctl start x")
    await until(lambda: host.machine.units["x.service"].available == 95.54)
    index, total, used, busy = (await ok(host, query)).strip().split(", ")
    assert (index, total, busy) == ("0", "143771", "[N/A]")
    # what the recorded H200 had, less what its driver keeps, less what the log says is left
    assert int(used) == pytest.approx(143771 - 615 - 95.54 * 1024, abs=2)
    apps = await ok(host, "nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits")
    assert apps.split(",")[0] == (await show(host, "x", "MainPID"))["MainPID"]


async def test_journal_entries_have_journalds_three_forms(host: SandboxHost) -> None:
    unit(
        host, "x", "printf 'a\\rb\\n<3>bad\\n\\n\\377x\\0tail'; head -c 5000 /dev/zero | tr '\\0' y", "Environment=P=1"
    )
    (host.root / "bin/head").symlink_to("/usr/bin/head")
    (host.root / "bin/tr").symlink_to("/usr/bin/tr")
    await ok(host, "systemctl start x")
    await until(lambda: host.machine.units["x.service"].active == "inactive")
    out = await ok(host, "journalctl -u x -o json --output-fields=MESSAGE,PRIORITY,_LINE_BREAK _TRANSPORT=stdout")
    entries = [json.loads(line) for line in out.splitlines()]
    assert [e["MESSAGE"] for e in entries[:3]] == [list(b"a\rb"), "bad", [255, 120]]
    assert [e["PRIORITY"] for e in entries[:2]] == ["6", "3"]
    assert entries[2]["_LINE_BREAK"] == "nul"
    assert (entries[3]["MESSAGE"], entries[3]["_LINE_BREAK"]) == (None, "eof")
    whole = await ok(host, "journalctl -u x -o json --all -n 20 _LINE_BREAK=eof || true")
    assert whole == "" or "tailyyy" in whole


async def test_cursors_resume_and_follow_sees_what_comes(host: SandboxHost) -> None:
    unit(host, "x", "for i in 1 2 3; do echo line $i; done; read -r _ < $HOME/go; echo line 4")
    await ok(host, 'python3 -c \'import os; os.mkfifo(os.environ["HOME"] + "/go")\'')
    await ok(host, "systemctl start x")
    await until(lambda: "line 3" in host.journal("x.service"))
    out = await ok(host, "journalctl -u x -o json SYSLOG_IDENTIFIER=sh")
    entries = [json.loads(line) for line in out.splitlines()]
    cursor = entries[1]["__CURSOR"]
    assert (await ok(host, f"journalctl -u x -o cat --after-cursor='{cursor}'")) == "line 3\n"
    assert (await ok(host, f"journalctl -u x -o cat --cursor='{cursor}'")) == "line 2\nline 3\n"
    follower = (await host.ssh.start(["journalctl", "-f", "-n", "1", "-u", "x", "-o", "cat"])).process
    assert follower.stdout
    assert await follower.stdout.readline() == b"line 3\n"
    await ok(host, "echo > $HOME/go")
    async with asyncio.timeout(2):
        assert await follower.stdout.readline() == b"line 4\n"
    follower.kill()
    await ok(host, "journalctl --rotate --vacuum-time=1s")
    assert (await ok(host, f"journalctl -u x -o cat -q --cursor='{cursor}'")) == ""


async def test_matches_choose_an_invocation_and_systemds_lines_about_it(host: SandboxHost) -> None:
    unit(host, "x", "echo hello")
    for _ in range(2):
        await ok(host, "systemctl start x")
        await until(lambda: host.machine.units["x.service"].active == "inactive")
    out = await ok(host, "journalctl -u x -o json SYSLOG_IDENTIFIER=sh")
    first, second = (json.loads(line)["_SYSTEMD_INVOCATION_ID"] for line in out.splitlines())
    assert first != second
    both = f"_SYSTEMD_INVOCATION_ID={second} + INVOCATION_ID={second}"
    told = (await ok(host, f"journalctl -u x -o cat {both}")).splitlines()
    assert told == ["Started x.service - Unit x.", "hello", "x.service: Deactivated successfully."]
