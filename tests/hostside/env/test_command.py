"""The whole `check` command as a host runs it, under this Python and under 3.9 where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostside.env.fake import Environment
from tests.hostside.support import FakeHost
from tests.hostside.test_commands import PYTHONS


@pytest.mark.parametrize("python", PYTHONS)
def test_a_slot_with_the_unit_that_it_would_start(env: Environment, tmp_path: Path, python: str) -> None:
    env.torch()
    env.kernel()
    env.sglang()
    host = FakeHost(tmp_path / "host")
    host.units()
    host.shim("systemd-analyze", "#!/bin/sh\n")
    text = f"[Service]\nExecStart={env.python} -m sglang.launch_server --model-path /m\n"
    slot = {"service": "a", "unit": "a.service", "port": 1, "gpus": [0], "unit_text": text, "profile": "p"}
    rows = host.run("check", {"services": [slot], "facts": True, "seconds": 20}, python)
    facts = rows.pop()["facts"]
    assert facts["environment a"]["packages"]["torch"] == "2.9.1+cu128"
    states = {row["name"]: row["state"] for row in rows}
    named = ("unit", "port", "interpreter", "modules", "requirements", "cuda abi", "cuda libraries", "jit locks")
    assert {name: states[name] for name in named} == dict.fromkeys(named, "ok")
    # no driver answers there, and models lie elsewhere than on this machine
    assert (states["gpus"], states["driver"], states["gpu architecture"]) == ("fail", "unknown", "unknown")
    assert states["model"] == "unknown"
