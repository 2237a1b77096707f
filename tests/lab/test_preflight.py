"""The failures of the story, and a held port, each seen before anything restarts, with a remedy that then passes."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddtree_console.domain.spec import Fleet, Profile, Service, Speculative
from ddtree_console.services.api import Check, Preflight
from ddtree_console.services.preflight import ChecksFailed
from tests.contract.consoles import UNIT, Screen, screen
from tests.contract.real import LabSide
from tests.hostside.env.fake import DRAFT, TARGET, Environment, Libraries, model
from tests.lab.fixtures import Hosts
from tests.lab.host import Host

pytestmark = pytest.mark.lab
GIB = 1 << 30
A6000 = f"""driver 580.95.05
nvml 13.580.95.05
cuda 13000
count 1
0.name NVIDIA RTX A6000
0.uuid GPU-1
0.pci 00000000:41:00.0
0.cc 86
0.total {48 * GIB}
0.reserved 0
0.used {GIB // 4}
0.gpu 0
0.mem 0
0.temp 30
0.power 20000
0.limit 300000
0.ecc 0
"""
FLAGS = (
    "model-path", "speculative-algorithm", "speculative-draft-model-path", "host", "port", "mem-fraction-static",
    "context-length", "max-running-requests", "attention-backend", "!disable-cuda-graph",
    "!disable-piecewise-cuda-graph",
)  # fmt: skip


def server_args(imports: str = "") -> str:
    """srt/server_args.py as releases up to 0.5.13 declare their flags."""
    kind = {"port": "int", "mem-fraction-static": "float", "context-length": "int", "max-running-requests": "int"}
    rows = []
    for name in FLAGS:
        if name.startswith("!"):
            rows.append(f'        parser.add_argument("--{name[1:]}", action="store_true", help="x")')
        else:
            rows.append(f'        parser.add_argument("--{name}", type={kind.get(name, "str")}, help="x")')
    body = "\n".join(rows)
    return f"""import argparse
import torch
{imports}

class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
{body}

def prepare(argv):
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser.parse_args(argv)
"""


class Story:
    """A host whose environment is all right, one card of 48 GB, and a console over it."""

    def __init__(self, host: Host, libraries: Libraries) -> None:
        self.host, root = host, host.path("/")
        # The machine may have CUDA itself: this host has none but what the environment brings.
        host.exec("rm -rf /usr/local/cuda* /opt/cuda; : > /etc/ld.so.cache")
        host.nvml(A6000)
        version = host.exec("/usr/bin/python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'").stdout.strip()
        self.env = Environment(root, "/opt/env", libraries, "/usr/bin/python3", version)
        self.env.torch("2.11.0", "12.8")
        self.env.kernel("0.4.1", "12", sass=(80, 90))
        # the driver's library, which the double does not bring
        host.write("/usr/lib/libcuda.so.1", libraries.make("libcuda.so.1"))
        self.env.sglang("0.5.12")
        self.env.write("sglang/srt/server_args.py", server_args())
        self.env.write(
            "sglang/launch_server.py", "import sys\nfrom sglang.srt.server_args import prepare\nprepare(sys.argv[1:])\n"
        )
        spec = "from enum import Enum, auto\n\nclass SpeculativeAlgorithm(Enum):\n    DFLASH = auto()\n"
        self.env.write("sglang/srt/speculative/spec_info.py", spec)
        model(root / "models/target", TARGET)
        model(root / "models/draft", DRAFT, tokenizer=False)
        host.exec("chmod -R a+rX /opt/env /models")

    def profile(self, flags: Mapping[str, Any] = {}, env: Mapping[str, str] = {}) -> Profile:
        return Profile(
            "ddtree",
            dialect="stock-0.5.12",
            python="/opt/env/bin/python3",
            user="ops",
            model="/models/target",
            flags={"mem-fraction-static": 0.85, "disable-piecewise-cuda-graph": True, **flags},
            env=dict(env),
            speculative=Speculative("linear", draft="/models/draft"),
        )

    def heavy(self, gib: float) -> None:
        """The target's weights are that large: a hole in a file, of which only the header is read."""
        size = int(gib * GIB)
        header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
        file = self.host.path("/models/target/model-00001-of-00002.safetensors")
        file.write_bytes(len(header).to_bytes(8, "little") + header)
        with file.open("r+b") as hole:
            hole.truncate(8 + len(header) + size)
        index = self.host.path("/models/target/model.safetensors.index.json")
        raw = json.loads(index.read_text())
        raw["metadata"]["total_size"] = size
        index.write_text(json.dumps(raw))


@pytest.fixture
def story(hosts: Hosts, tmp_path: Path) -> Story:
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    return Story(hosts["h1"], Libraries(libraries))


@pytest.fixture
async def see(story: Story) -> AsyncIterator[Screen]:
    side = LabSide(story.host)
    slot = Service(side.spec.name, "qwen", UNIT, side.port, gpus=(0,), profile="ddtree", hold_s=0.2, deadline_s=20.0)
    fleet = Fleet("fleet.yaml", (replace(side.spec, services=(slot,)),), {"ddtree": story.profile()})
    async with screen(fleet) as seen:
        await seen.up()
        yield seen


def by_name(found: Preflight) -> dict[str, Check]:
    return {check.name: check for check in found.checks}


async def refused(see: Screen, profile: Profile, name: str) -> Check:
    """That check, and it alone, refuses a deployment: nothing on the host changes."""
    with pytest.raises(ChecksFailed) as caught:
        await see.console.deploy(see.key, profile)
    assert caught.value.code == 7
    assert [c.name for c in caught.value.failed] == [name], caught.value
    assert list(await see.console.history(see.key)) == []
    return caught.value.failed[0]


async def passes(see: Screen, profile: Profile) -> dict[str, Check]:
    """Nothing fails any more."""
    found = await see.console.preflight(see.key, profile)
    assert found.failed == (), found.failed
    return by_name(found)


async def a_whole_service_in_three_seconds(story: Story, see: Screen) -> None:
    await see.console.preflight(see.key, story.profile())
    began = time.monotonic()
    found = await see.console.preflight(see.key, story.profile())
    took = time.monotonic() - began
    checks = by_name(found)
    assert found.failed == (), found.failed
    named = ("connection", "sudo", "systemd", "unit", "port", "gpus", "interpreter", "modules", "requirements",
             "cuda abi", "cuda libraries", "driver", "gpu architecture", "model", "tokenizer", "draft",
             "draft fits target", "host memory", "disk", "jit locks", "flags", "memory", "patched files")  # fmt: skip
    states = {name: checks[name].state for name in named}
    assert {n for n, s in states.items() if s not in ("ok", "warn")} == set(), {n: checks[n] for n in named}
    assert found.build.release == "0.5.12"
    assert "as ops" in checks["model"].evidence
    assert took < 3, found


async def a_pool_that_is_too_small(story: Story, see: Screen) -> None:
    story.heavy(40)
    tight = story.profile({"mem-fraction-static": 0.8})
    found = await see.console.preflight(see.key, tight)
    check = await refused(see, tight, "memory")
    assert "does not fit" in check.evidence
    assert found.memory is not None
    assert found.memory.least is not None
    assert str(found.memory.least) in check.remedy, check
    await passes(see, story.profile({"mem-fraction-static": found.memory.least}))
    # edited, it is told at once and without the host
    began = time.monotonic()
    _, estimate = see.console.forecast(see.key, tight)
    assert estimate is not None
    assert estimate.verdict == "does not fit"
    assert time.monotonic() - began < 0.1


async def a_capture_that_cannot_work_on_this_card(story: Story, see: Screen) -> None:
    story.env.kernel("0.4.1", "12", sass=(90,))
    check = await refused(see, story.profile(), "gpu architecture")
    assert "GPU is sm_86; sgl-kernel 0.4.1 has code for sm_90 only" in check.evidence
    assert "install a sgl-kernel that has sm_86" in check.remedy
    story.env.kernel("0.4.1", "12", sass=(86, 90))
    await passes(see, story.profile())


async def the_prefill_graph_that_disable_cuda_graph_leaves_on(story: Story, see: Screen) -> None:
    hopeful = story.profile({"disable-piecewise-cuda-graph": False, "disable-cuda-graph": True})
    check = by_name(await see.console.preflight(see.key, hopeful))["graphs"]
    assert (check.state, check.remedy) == ("warn", "add --disable-piecewise-cuda-graph")
    assert "piecewise" in check.evidence
    assert "graphs" not in await passes(see, story.profile({"disable-cuda-graph": True}))


async def torch_and_kernels_for_different_cuda(story: Story, see: Screen) -> None:
    story.env.kernel("0.4.1", "13", sass=(80, 90))
    check = await refused(see, story.profile(), "cuda abi")
    assert (
        "torch 2.11.0+cu128 (CUDA 12.8), sgl-kernel 0.4.1 (CUDA 13): sgl-kernel needs libcudart.so.13" in check.evidence
    )
    assert check.remedy == "install sgl-kernel built for CUDA 12.8, or torch for CUDA 13"
    story.env.torch("2.11.0", "13.0")
    await passes(see, story.profile())


async def kernels_whose_libraries_lie_in_the_environment(story: Story, see: Screen) -> None:
    """What worked in the end on ct200."""
    story.env.kernel("0.4.1", "13", sass=(80, 90))
    folder = story.env.runtime("13", "cu13")
    check = await refused(see, story.profile(), "cuda abi")
    found = re.fullmatch(r"set env (LD_LIBRARY_PATH) to (.*)", check.remedy)
    assert found is not None
    assert found[2] == folder
    checks = await passes(see, story.profile(env={found[1]: found[2]}))
    assert "(LD_LIBRARY_PATH)" in checks["cuda libraries"].evidence


async def a_missing_module(story: Story, see: Screen) -> None:
    story.env.write("sglang/srt/server_args.py", server_args("import orjson"))
    check = await refused(see, story.profile(), "modules")
    assert f"missing: orjson ({story.env.site_at}/sglang/srt/server_args.py:3)" in check.evidence
    assert check.remedy == "/opt/env/bin/python -m pip install orjson"
    story.env.package("orjson", "3.10.0", files={"orjson/__init__.py": ""})
    await passes(see, story.profile())


async def a_held_port_and_a_reason_that_lands_in_the_history(story: Story, see: Screen) -> None:
    story.host.exec("systemd-run --unit=squatter /usr/bin/python3 -m http.server 30000 --bind 127.0.0.1")
    await _until(lambda: story.host.exec("ss -ltn").stdout.count(":30000") > 0)
    check = await refused(see, story.profile(), "port")
    assert "squatter.service" in check.evidence
    assert check.remedy == "stop squatter.service, or change the port"
    story.host.exec("systemctl stop squatter.service")
    await passes(see, story.profile())
    story.env.write("sglang/srt/server_args.py", server_args("import msgspec"))
    tx = await see.deploy("ddtree", force=True, reason="the module comes with the next start", on_failure="stop")
    assert (await see.outcome(tx)).data["state"] in ("nothing_serves", "stopped"), tx
    history = await see.console.history(see.key)
    assert history[0].reason == "the module comes with the next start"


async def _until(holds: Any) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


async def a_gpu_that_another_uses_and_one_that_is_ill(story: Story, see: Screen) -> None:
    pid = story.host.exec("systemctl show -p MainPID --value ssh").stdout.strip()
    story.host.nvml(A6000 + f"0.proc {pid}:{8 * GIB}\n")
    check = await refused(see, story.profile(), "gpus")
    assert f"(pid {pid}, root, ssh.service, 8.0 GiB) uses it" in check.evidence
    story.host.nvml(A6000.replace("0.ecc 0", "0.ecc 7"))
    checks = await passes(see, story.profile())
    assert (checks["gpus"].state, "7 uncorrected memory errors" in checks["gpus"].evidence) == ("warn", True)
    story.host.nvml(A6000 + "0.err 15\n")
    assert "fell off the bus" in (await refused(see, story.profile(), "gpus")).evidence


async def a_host_that_cannot_be_read_says_so_and_blocks_nothing(story: Story, see: Screen) -> None:
    story.host.no_nvml()
    story.host.path("/models/draft/config.json").write_text("{}")
    story.host.path(f"{story.env.site_at}/sglang-0.5.12.dist-info/METADATA").unlink()
    story.host.path(f"{story.env.site_at}/sglang/srt/server_args.py").write_text("def (")
    checks = by_name(await see.console.preflight(see.key, story.profile()))
    assert checks["gpu architecture"].evidence.startswith("not known, because")
    assert checks["draft fits target"].evidence.startswith("not known, because")
    assert checks["interpreter"].state == "ok"
    assert checks["port"].state == "ok"
    assert {c.name for c in checks.values() if c.state == "fail"} <= {"gpus", "requirements"}


async def test_the_storys_failures_are_known_before_a_restart(story: Story, see: Screen) -> None:
    """Each is mended before the next one: one host and one connection for all of them."""
    await a_whole_service_in_three_seconds(story, see)
    await the_prefill_graph_that_disable_cuda_graph_leaves_on(story, see)
    await a_capture_that_cannot_work_on_this_card(story, see)
    await a_missing_module(story, see)
    await kernels_whose_libraries_lie_in_the_environment(story, see)
    story.host.exec(f"rm -r {story.env.site_at}/nvidia/cu13")
    await torch_and_kernels_for_different_cuda(story, see)
    await a_pool_that_is_too_small(story, see)
    model(story.host.path("/models/target"), TARGET)
    await a_held_port_and_a_reason_that_lands_in_the_history(story, see)


async def test_gpus_that_others_use_and_a_host_of_which_little_is_known(story: Story, see: Screen) -> None:
    await a_gpu_that_another_uses_and_one_that_is_ill(story, see)
    await a_host_that_cannot_be_read_says_so_and_blocks_nothing(story, see)
