"""The demo's fleet: the story's hosts, slots and profiles as real YAML files, whose commands replay recordings."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

from ddtree_console.config.load import load_fleet
from ddtree_console.demo import shims, wrapper_fleet
from ddtree_console.domain.spec import Fleet

FAST = 1000.0
"""Speed of the services that serve already when the demo begins."""

HOLD_S = 5.0

_FLEET = """\
# The demo's two hosts. They live in this process and end with it.
hosts:
  ct129:
    address: 127.0.0.1
    user: root
    services:
      sglang-qwen:
        unit: sglang-qwen.service
        port: {ct129_qwen}
        gpus: [0, 1]
        profile: ddtree-shadow
        fallback: linear-wrapper
  ct200:
    address: 127.0.0.1
    user: root
    services:
      wrapper:
        unit: wrapper.service
        port: {ct200_wrapper}
        gpus: [0]
        profile: linear-wrapper
        fallback: linear-wrapper
      sglang-dflash:
        unit: sglang-dflash.service
        port: {ct200_dflash}
        gpus: [1]
        profile: dflash-smoke
        fallback_service: wrapper
"""

_PROFILES = {
    "ddtree-shadow": """\
engine: sglang
dialect: plugin-0.5.12
command: [demo-sglang]
model: /models/qwen3.6-27b
flags:
  mem-fraction-static: 0.88
  context-length: 131072
  attention-backend: triton
  enable-metrics: true
speculative: {kind: ddtree, shadow: true, budget: 31, draft: /models/qwen3.6-27b-dflash}
""",
    "ddtree-shadow-small": """\
extends: ddtree-shadow
flags:
  mem-fraction-static: 0.95
  context-length: 32768
  max-running-requests: 4
""",
    "ddtree-shadow-small-nograph": """\
extends: ddtree-shadow-small
flags:
  disable-cuda-graph: true
""",
    "dflash-smoke": """\
engine: sglang
dialect: stock-0.5.12
command: [demo-sglang]
model: /models/qwen3-target
flags:
  mem-fraction-static: 0.3
  context-length: 8192
  attention-backend: triton
  enable-metrics: true
env:
  LD_LIBRARY_PATH: /root/ml-env/lib/python3.12/site-packages/nvidia/cu13/lib
speculative: {kind: linear, draft: /models/qwen3-dflash-draft}
""",
    "linear-wrapper": """\
engine: wrapper
command: [demo-wrapper]
model: /models/qwen3-target
speculative: {kind: linear, draft: /models/qwen3-dflash-draft}
""",
}

SERVING = {"ct129": ("sglang-qwen", "ddtree"), "ct200": ("wrapper",)}
"""host -> the service that serves SERVING_PROFILE when the demo begins: the first of these that the fleet has"""
SERVING_PROFILE = "linear-wrapper"

_PROGRAM = """#!/bin/sh
# Stands for the {engine} program of a real host: replays a recording of it.
read -r speed < '{speed}'
exec '{python}' -I -B '{replayer}' --conditions '{conditions}' --host-name {host} --engine {engine} \\
  --speed "$speed" --children 1 "$@"
"""


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def write(folder: Path, model: str = "") -> Path:
    """fleet.yaml and the profiles; returns fleet.yaml. Ports are chosen here. model: of the wrapper's fleet, '' for the
    replayed one."""
    folder.mkdir(parents=True, exist_ok=True)
    ports = {name: free_port() for name in ("ct129_qwen", "ct200_wrapper", "ct200_dflash")}
    if model:
        return wrapper_fleet.write(folder, ports, model)
    for name, text in _PROFILES.items():
        (folder / f"{name}.yaml").write_text(text, "utf-8")
    path = folder / "fleet.yaml"
    path.write_text(_FLEET.format_map(ports), "utf-8")
    return path


def load(path: Path) -> Fleet:
    """The fleet of that file. The demo holds a release for HOLD_S only: the story is to be lived in minutes."""
    fleet = load_fleet(path)
    hosts = (replace(h, services=tuple(replace(s, hold_s=HOLD_S) for s in h.services)) for h in fleet.hosts)
    return replace(fleet, hosts=tuple(hosts), demo=True)


def install_programs(bin_folder: Path, host: str, speed_file: Path) -> None:
    """demo-sglang and demo-wrapper in the host's PATH."""
    here = Path(__file__).parent
    for engine in ("sglang", "wrapper"):
        program = bin_folder / f"demo-{engine}"
        text = _PROGRAM.format(
            engine=engine,
            speed=speed_file,
            python=shims.interpreter(),
            replayer=here / "replayer.py",
            conditions=here / "conditions.yaml",
            host=host,
        )
        program.write_text(text, "utf-8")
        program.chmod(0o755)
