"""A unit's life as systemd 252 shows it: the table of behaviours seen on real hosts."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from ddtree_console.demo.host import SandboxHost
from tests.demo.helpers import alive, ok, show, unit, until


async def test_a_simple_unit_runs_in_its_own_cgroup_and_a_new_invocation_each_start(host: SandboxHost) -> None:
    unit(host, "x", "echo up; exec sleep 60")
    await ok(host, "systemctl start x")
    first = await show(host, "x", "ActiveState", "SubState", "MainPID", "InvocationID", "ControlGroup")
    assert (first["ActiveState"], first["SubState"]) == ("active", "running")
    assert first["ControlGroup"] == "/system.slice/x.service"
    procs = host.root / "cgroup/system.slice/x.service/cgroup.procs"
    assert first["MainPID"] in procs.read_text().split()
    await ok(host, "systemctl restart x")
    second = await show(host, "x", "MainPID", "InvocationID")
    assert second["InvocationID"] != first["InvocationID"]
    assert not alive(int(first["MainPID"]))
    await ok(host, "systemctl stop x")
    assert not alive(int(second["MainPID"]))
    assert not procs.exists()
    assert (await show(host, "x", "ActiveState", "ControlGroup")) == {"ActiveState": "inactive", "ControlGroup": ""}


async def test_start_of_a_missing_program_exits_0_and_fails_a_moment_later(host: SandboxHost) -> None:
    host.write("/etc/systemd/system/x.service", "[Service]\nExecStart=/nonexistent/program\n")
    assert (await host.exec("systemctl start x")).returncode == 0
    await until(lambda: host.machine.units["x.service"].active == "failed")
    state = await show(host, "x", "Result", "ExecMainStatus", "ExecMainCode", "ActiveState")
    assert state == {"Result": "exit-code", "ExecMainStatus": "203", "ExecMainCode": "1", "ActiveState": "failed"}
    assert "x.service: Main process exited, code=exited, status=203/EXEC" in host.journal("x.service")


async def test_a_failing_prestart_fails_the_job_with_no_main_status(host: SandboxHost) -> None:
    unit(host, "x", "sleep 60", "ExecStartPre=/bin/sh -c 'exit 7'")
    done = await host.exec("systemctl start x")
    assert done.returncode == 1
    assert "Job for x.service failed" in done.stderr
    state = await show(host, "x", "Result", "ExecMainStatus", "ActiveState")
    assert state == {"Result": "exit-code", "ExecMainStatus": "0", "ActiveState": "failed"}


async def test_a_broken_file_is_bad_setting_and_inactive(host: SandboxHost) -> None:
    host.write("/etc/systemd/system/x.service", "[Service]\nExecStrat=/bin/true\n")
    done = await host.exec("systemctl start x")
    assert done.returncode == 1
    assert "bad unit file setting" in done.stderr
    assert await show(host, "x", "LoadState", "ActiveState") == {"LoadState": "bad-setting", "ActiveState": "inactive"}


async def test_crash_loop_ends_failed_with_the_exits_own_result(host: SandboxHost) -> None:
    unit(host, "x", "exit 1", "Restart=on-failure\nRestartSec=20ms", "StartLimitBurst=3\n")
    await ok(host, "systemctl start x")
    await until(lambda: host.machine.units["x.service"].active == "failed")
    state = await show(host, "x", "Result", "NRestarts", "ActiveState", "SubState")
    assert state == {"Result": "exit-code", "NRestarts": "3", "ActiveState": "failed", "SubState": "failed"}
    told = host.journal("x.service")
    assert "x.service: Scheduled restart job, restart counter is at 1." in told
    assert "x.service: Start request repeated too quickly." in told
    assert (await host.exec("systemctl start x")).returncode == 1
    await ok(host, "systemctl reset-failed x")
    assert await show(host, "x", "ActiveState", "Result") == {"ActiveState": "inactive", "Result": "success"}
    assert (await host.exec("systemctl start x")).returncode == 0


async def test_only_a_unit_that_succeeds_again_and_again_shows_the_start_limit(host: SandboxHost) -> None:
    unit(host, "x", "true", "Restart=always\nRestartSec=10ms", "StartLimitBurst=3\n")
    await ok(host, "systemctl start x")
    await until(lambda: host.machine.units["x.service"].active == "failed")
    assert await show(host, "x", "Result") == {"Result": "start-limit-hit"}


async def test_term_ignored_ends_in_timeout_and_sigkill(host: SandboxHost) -> None:
    unit(host, "x", "trap '' TERM; while :; do sleep 0.1; done", "TimeoutStopSec=300ms")
    await ok(host, "systemctl start x")
    began = time.monotonic()
    await ok(host, "systemctl stop x")
    assert 0.25 < time.monotonic() - began < 3
    state = await show(host, "x", "Result", "ExecMainStatus", "ExecMainCode", "ActiveState")
    assert state == {"Result": "timeout", "ExecMainStatus": "9", "ExecMainCode": "2", "ActiveState": "failed"}
    assert "x.service: State 'stop-sigterm' timed out. Killing." in host.journal("x.service")


async def test_kill_gives_result_signal_in_systemds_words(host: SandboxHost) -> None:
    unit(host, "x", "exec sleep 60")
    await ok(host, "systemctl start x && systemctl kill --signal=KILL x")
    await until(lambda: host.machine.units["x.service"].active == "failed")
    told = host.journal("x.service")
    assert told[-2:] == [
        "x.service: Main process exited, code=killed, status=9/KILL",
        "x.service: Failed with result 'signal'.",
    ]


async def test_no_descendant_escapes_by_a_session_of_its_own(host: SandboxHost) -> None:
    # Neither setsid, nor a double fork whose parent is gone, nor an empty environment leaves a control group.
    script = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        open(os.environ['HOME'] + '/pid', 'w').write(str(os.getpid()))\n"
        "        time.sleep(60)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "time.sleep(60)\n"
    )
    host.write("/root/fork.py", script)
    unit(host, "x", f"exec python3 -IS {host.path('/root/fork.py')}")
    await ok(host, "systemctl start x")
    pid_file = host.path("/root/pid")
    await until(lambda: pid_file.exists() and pid_file.read_text())
    grandchild = int(pid_file.read_text())
    assert alive(grandchild)
    await ok(host, "systemctl stop x")
    assert not alive(grandchild)


async def test_stop_post_learns_how_it_ended_and_runs_before_it_is_down(host: SandboxHost) -> None:
    post = "ExecStopPost=/bin/sh -c 'echo post $SERVICE_RESULT $EXIT_CODE $EXIT_STATUS'"
    unit(host, "x", "exit 4", post)
    await ok(host, "systemctl start x")
    await until(lambda: host.machine.units["x.service"].active == "failed")
    assert "post exit-code exited 4" in host.journal("x.service")


async def test_a_stop_during_the_restart_wait_leaves_it_dead(host: SandboxHost) -> None:
    unit(host, "x", "exit 1", "Restart=always\nRestartSec=60")
    await ok(host, "systemctl start x")
    await until(lambda: host.machine.units["x.service"].sub == "auto-restart")
    assert await show(host, "x", "ActiveState", "Result") == {"ActiveState": "activating", "Result": "exit-code"}
    await ok(host, "systemctl stop x")
    assert (await show(host, "x", "ActiveState")) == {"ActiveState": "inactive"}


async def test_oneshot_blocks_until_done_and_remains_where_asked(host: SandboxHost) -> None:
    unit(host, "x", "sleep 0.2; echo done", "Type=oneshot\nRemainAfterExit=yes")
    await ok(host, "systemctl start x")
    assert "done" in host.journal("x.service")
    assert await show(host, "x", "ActiveState", "SubState") == {"ActiveState": "active", "SubState": "exited"}


async def test_cpu_time_of_the_cgroup_moves_only_with_work(host: SandboxHost) -> None:
    unit(host, "busy", "while :; do :; done")
    unit(host, "idle", "exec sleep 60")
    await ok(host, "systemctl start busy idle")
    stat = host.root / "cgroup/system.slice/busy.service/cpu.stat"
    await until(lambda: int(stat.read_text().split()[1]) > 100_000)
    idle = (host.root / "cgroup/system.slice/idle.service/cpu.stat").read_text()
    assert int(idle.split()[1]) < 50_000
    await ok(host, "systemctl kill -s KILL busy")


async def test_environment_and_specifiers_reach_the_process(host: SandboxHost) -> None:
    host.write("/etc/extra.env", "FROM_FILE='a b'\n# no\n")
    text = (
        "[Service]\n"
        'Environment="A=100%% \\"x\\"" B=$A\n'
        f"EnvironmentFile={host.path('/etc/extra.env')}\n"
        "EnvironmentFile=-/nonexistent\n"
        'ExecStart=/bin/sh -c \'printf "%%s|" "$$A" "$$B" "$$FROM_FILE" %n; echo\' ${A}\n'
    )
    host.write("/etc/systemd/system/x.service", text)
    await ok(host, "systemctl start x")
    await until(lambda: host.machine.units["x.service"].active == "inactive")
    assert '100% "x"|$A|a b|x.service|' in host.journal("x.service")


async def test_the_shims_stay_first_whatever_path_a_unit_sets(host: SandboxHost) -> None:
    unit(host, "x", "command -v systemctl", "Environment=PATH=/usr/bin:/bin")
    await ok(host, "systemctl start x")
    await until(lambda: host.machine.units["x.service"].active == "inactive")
    assert f"{host.root}/bin/systemctl" in host.journal("x.service")


async def test_the_machines_own_tools_are_not_run_even_by_their_full_path(host: SandboxHost) -> None:
    host.write("/etc/systemd/system/x.service", "[Service]\nExecStart=/usr/bin/systemctl --version\n")
    await ok(host, "systemctl start x")
    await until(lambda: host.machine.units["x.service"].active == "inactive")
    assert "systemd 252 (ddtree-console sandbox)" in host.journal("x.service")


async def test_a_signal_from_outside_is_seen_at_once(host: SandboxHost) -> None:
    unit(host, "x", "exec sleep 60")
    await ok(host, "systemctl start x")
    os.kill(int((await show(host, "x", "MainPID"))["MainPID"]), signal.SIGSEGV)
    async with asyncio.timeout(1):
        await until(lambda: host.machine.units["x.service"].active == "failed")
    assert host.machine.units["x.service"].result in ("signal", "core-dump")
