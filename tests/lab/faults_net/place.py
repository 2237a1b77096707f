"""Where an operator works: a fleet file with its profiles, a known_hosts file, and commands as processes."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.lab.host import Host
from tests.lab.machine import ROOT
from tests.lab.replay import FOLDER

UNIT = "sglang-qwen.service"
KEY = "h1/qwen"
PORT = 30000

FLEET = """\
hosts:
  h1:
    address: {address}
    user: {user}
    identity: {identity}
    known_hosts: {known_hosts}
    services:
      qwen:
        unit: {unit}
        port: {port}
        profile: quick
        fallback: way
        hold_s: 0.5
        deadline_s: 60
"""
PROFILE = """\
engine: sglang
dialect: stock-0.5.12
command: [/usr/bin/python3, -B, {program}, --recording, {recording}, --speed, "{speed:g}"]
model: {model}
flags: {{host: 127.0.0.1{flags}}}
"""
SPEEDS = {"quick": 200.0, "way": 200.0, "brisk": 40.0, "slow": 25.0}
"""profile -> how many times faster than recorded; slow takes some 4 s, long enough to be in the middle of it."""


@dataclass(frozen=True)
class Place:
    """One folder of one operator, aimed at one host."""

    folder: Path
    host: Host
    user: str = "root"

    @property
    def fleet(self) -> Path:
        """fleet.yaml."""
        return self.folder / "fleet.yaml"

    @property
    def known_hosts(self) -> Path:
        """The one file whose host keys are trusted."""
        return self.folder / "known_hosts"

    def make(self, identity: Path | None = None) -> Place:
        """Writes all of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        key = self.host.exec("ssh-keygen -yf /etc/ssh/ssh_host_ed25519_key").stdout  # a test may have changed it
        self.known_hosts.write_text(f"{self.host.ip} {key}")
        words = {"identity": identity or self.host.key, "known_hosts": self.known_hosts, "unit": UNIT, "port": PORT}
        self.fleet.write_text(FLEET.format(address=self.host.ip, user=self.user, **words))
        for name, speed in SPEEDS.items():
            self.profile(name, "dflash-healthy-bars", speed)
        return self

    def profile(
        self, name: str, recording: str, speed: float, *, flags: str = "", program: str = f"{FOLDER}/replayer.py"
    ) -> None:
        """A profile whose server is that recording. flags: further YAML of its flags."""
        words = {"recording": recording, "speed": speed, "model": f"/models/{name}"}
        text = PROFILE.format(program=program, flags=flags, **words)
        (self.folder / f"{name}.yaml").write_text(text)

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        """`ddtree-console WORDS` as a process; its subcommand comes first."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "console"), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ddtree_console.cli", words[0], "--fleet", str(self.fleet), *words[1:]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )

    async def run(self, *words: str, timeout: float = 30.0) -> tuple[int, str, str]:
        """Its exit code, standard output and standard error."""
        process = await self.start(*words)
        async with asyncio.timeout(timeout):
            out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()
