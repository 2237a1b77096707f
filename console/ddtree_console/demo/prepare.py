"""What the demo's hosts have behind them when it begins: host code, and a committed release that serves."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import asdict
from pathlib import Path

from ddtree_console.config.rules import load_rules
from ddtree_console.demo import fleet as demo_fleet
from ddtree_console.demo.host import SandboxHost
from ddtree_console.domain.spec import Fleet, Service
from ddtree_console.services import plans
from ddtree_console.transport import archive, bootstrap

WHO = "demo"
START_SECONDS = 15.0
"""The longest that a replayed server may take to open its port."""


class NotPrepared(RuntimeError):
    """The demo could not be set up: what failed, in the host's own words."""


def serving(fleet: Fleet, host: str) -> tuple[Service, str] | None:
    """(slot, profile) that serves on that host from the start."""
    keys = {s.key for h in fleet.hosts for s in h.services}
    for name in demo_fleet.SERVING.get(host, ()):
        if f"{host}/{name}" in keys:
            return fleet.service(f"{host}/{name}"), demo_fleet.SERVING_PROFILE
    return None


def write_units(fleet: Fleet, host: SandboxHost) -> None:
    """The committed unit of the slot that serves, enabled: the boot starts it."""
    found = serving(fleet, host.name)
    if found is None:
        return
    service, profile = found
    path = host.write(
        f"/etc/systemd/system/{service.unit}", plans.candidate(fleet.profiles[profile], service).unit_text
    )
    wants = path.parent / "multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / service.unit).symlink_to(path)


async def install(hosts: list[SandboxHost]) -> str:
    """The host code in every host's VAR, as a console would install it; its hash. NotPrepared."""
    code = archive.build(load_rules())
    first, *others = hosts
    answer = await _ask(
        first, ["python3", "-I", "-"], bootstrap.installer_text(code, str(first.roots_file)), "install the host code"
    )
    where = Path(str(answer["where"]))
    for host in others:
        await asyncio.to_thread(shutil.copytree, where, host.root / "var/bin" / code.hash)
    return code.hash


async def adopt(fleet: Fleet, host: SandboxHost, code: str) -> None:
    """The unit that serves becomes r1 through the host code itself, its way back kept with it. NotPrepared."""
    found = serving(fleet, host.name)
    if found is None:
        return
    service, profile = found
    candidate = plans.candidate(fleet.profiles[profile], service)
    question = {
        "unit": service.unit,
        "profile": dict(candidate.profile),
        "profile_name": candidate.profile_name,
        "engine": candidate.engine,
        "way_back": asdict(candidate),
        "who": WHO,
    }
    argv = ["python3", "-I", "-B", str(host.root / "var/bin" / code), f"--roots={host.roots_file}", "adopt"]
    await _ask(host, argv, json.dumps(question).encode(), f"adopt {service.unit}")


async def until_serving(fleet: Fleet, host: SandboxHost, timeout: float = START_SECONDS) -> None:
    """Until the slot's port is open. TimeoutError."""
    found = serving(fleet, host.name)
    if found is None:
        return
    async with asyncio.timeout(timeout):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", found[0].port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return


async def _ask(host: SandboxHost, argv: list[str], stdin: bytes, what: str) -> dict[str, object]:
    process = (await host.ssh.start(argv)).process
    out, err = await process.communicate(stdin)
    try:
        answer: dict[str, object] = json.loads(out)
    except ValueError:
        answer = {}
    if process.returncode or "error" in answer or answer.get("ok") is False:
        raise NotPrepared(f"demo host {host.name}: {what}: {(out or err).decode('utf-8', 'replace').strip()[-500:]}")
    return answer
