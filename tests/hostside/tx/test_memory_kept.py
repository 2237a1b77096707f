"""A real transaction keeps what the start said of memory, and the host's answer corrects the next estimate."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ddtree_console.domain.memory.estimate import estimate
from ddtree_console.domain.plan import Candidate, Plan
from ddtree_console.domain.snapshot import Gpu, GpuReport
from ddtree_console.domain.spec import Profile, Service, Speculative
from ddtree_console.services import memory
from ddtree_console.services.wire import profile_json
from tests.domain.memory import models
from tests.hostside.tx.slots import Slot

# What SGLang 0.5.12 printed on an H200, in the order in which it printed it.
LINES = """
[2026-11-29 14:23:57] Load weight begin. avail mem=139.13 GB
[2026-11-29 14:23:58] Load weight end. elapsed=0.20 s, type=Qwen3ForCausalLM, avail mem=137.94 GB, mem usage=1.18 GB.
[2026-11-29 14:23:59] KV Cache is allocated. #tokens: 321771, K size: 17.18 GB, V size: 17.18 GB
[2026-11-29 14:23:59] Memory pool end. avail mem=103.47 GB
[2026-11-29 14:24:51] Load weight begin. avail mem=101.85 GB
[2026-11-29 14:24:51] Load weight end. elapsed=0.01 s, type=DFlashDraftModel, avail mem=101.69 GB, mem usage=0.15 GB.
"""
LAUNCH = f'''import runpy, sys
print("""{LINES}""", flush=True)
value = lambda name: sys.argv[sys.argv.index(name) + 1]
sys.argv = ["server.py", value("--port"), value("--model-path"), "ok"]
runpy.run_path({{server!r}}, run_name="__main__")
'''
UNIT = """[Service]
Environment=PYTHONPATH={tools}
ExecStart={python} -m sglang.launch_server --model-path {target} --host 127.0.0.1 --port {port} \\
    --load-format dummy --mem-fraction-static 0.3 --context-length 8192 --speculative-algorithm DFLASH \\
    --speculative-draft-model-path {draft}
TimeoutStopSec=30

[Install]
WantedBy=multi-user.target
"""


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Folders of target and draft that hold a config.json only, as the recordings' did."""
    for name, config in (("target", models.TARGET), ("draft", models.DRAFT)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    return tmp_path / "target", tmp_path / "draft"


async def test_a_start_teaches_the_next_estimate(slot: Slot, pair: tuple[Path, Path]) -> None:
    target, draft = pair
    # an environment of its own, in which 0.5.12 is installed as far as its metadata go
    python = slot.tools / "venv" / "bin" / "python3"
    (slot.tools / "venv/lib/python3.12/site-packages/sglang-0.5.12.dist-info").mkdir(parents=True)
    python.parent.mkdir()
    python.symlink_to(os.path.realpath(sys.executable))
    package = slot.tools / "sglang"
    package.mkdir()
    (package / "launch_server.py").write_text(LAUNCH.format(server=str(slot.tools / "server.py")))
    flags = {"load-format": "dummy", "mem-fraction-static": 0.3, "context-length": 8192}
    profile = Profile(
        "one", python=str(python), model=str(target), flags=flags,
        speculative=Speculative("linear", draft=str(draft)), dialect="stock-0.5.12",
    )  # fmt: skip
    text = UNIT.format(tools=slot.tools, python=python, target=target, port=slot.port, draft=draft)
    new = Candidate(text, "one", profile_json(profile), set_flags=flags)
    plan = Plan("deploy", slot.unit, "slot", slot.port, new=new, hold=0.2, deadline=20.0)
    view = await slot.outcome(await slot.submit(plan))
    assert view.outcome == "committed", view

    class Commands:
        """The host's commands, as the console calls them."""

        async def call(self, command: str, payload: dict[str, object], timeout: float) -> dict[str, object]:
            """Through the sandbox's own processes."""
            return await slot.command(command, payload, timeout)

    service = Service("h1", "slot", slot.unit, slot.port, gpus=(0,))
    gpu = Gpu(0, "NVIDIA H200", total=models.H200_TOTAL, used=0, free=models.H200_FREE)
    known = await memory.facts(Commands(), service, profile)  # type: ignore[arg-type]
    assert known is not None and known.target.config["num_hidden_layers"] == 28
    (start,) = known.starts
    assert start["measured"]["kv cache tokens"] == 321771 and start["model"] == str(target)
    report = GpuReport("nvml", gpus=(gpu,))
    made = memory.inputs(service, profile, known, report, "0.5.12")
    assert made is not None and start["release"] == made.release == "0.5.12"
    found = memory.estimate(service, profile, known, report, "0.5.12")
    assert found is not None and found.tokens == pytest.approx(321_771, abs=2)
    blind = estimate(replace(made, residual={}))
    assert found.learnt == f"corrected by the last start here: 321,771 tokens, {blind.tokens:,} were estimated"
