"""A unit with a start job that has not run yet is not forgotten."""

from __future__ import annotations

from pathlib import Path

from ddtree_console.demo.sandbox import Sandbox


async def test_a_reload_between_the_job_and_its_run_keeps_the_unit(tmp_path: Path) -> None:
    async with Sandbox(tmp_path, hosts=("h1",), prepared=False) as box:
        machine = box.host("h1").machine
        unit = tmp_path / "h1" / "etc/systemd/system/sleeper.service"
        unit.write_text("[Service]\nExecStart=/bin/sleep 60\n")
        service = machine.unit("sleeper.service")
        job = machine.spawn_job(service)
        machine.reload()
        assert machine.unit("sleeper.service") is service
        assert await job == "done"
        assert machine.unit("sleeper.service").active == "active"
        await service.stop()
        assert not service.busy
        assert machine.unit("sleeper.service") is not service
