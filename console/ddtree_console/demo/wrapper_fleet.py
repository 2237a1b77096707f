"""The demo's other fleet: the wrapper server itself on both hosts, really decoding, on this machine's CPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from ddtree_console.domain.quoting import quote_plain

NEEDED = ("ddtree_kernels", "torch", "tokenizers", "safetensors", "starlette", "uvicorn", "prometheus_client")
START_SECONDS = 120.0
"""The longest that the servers may take to open their ports: each imports torch."""

FLEET = """\
# The demo's two hosts. They live in this process and end with it; their servers decode on this machine's CPU.
hosts:
  ct129:
    address: 127.0.0.1
    user: root
    services:
      ddtree:
        unit: ddtree.service
        port: {ct129_qwen}
        profile: ddtree-wrapper
        fallback: linear-wrapper
  ct200:
    address: 127.0.0.1
    user: root
    services:
      wrapper:
        unit: wrapper.service
        port: {ct200_wrapper}
        profile: linear-wrapper
        fallback: linear-wrapper
      shadow:
        unit: shadow.service
        port: {ct200_dflash}
        profile: shadow-wrapper
        fallback_service: wrapper
"""

_PROFILES = {
    "linear-wrapper": """\
engine: wrapper
python: {python}
model: {model}
flags:
  device: cpu
  drain-seconds: 2
speculative: {{kind: linear}}
""",
    "ddtree-wrapper": """\
extends: linear-wrapper
speculative: {{kind: ddtree, budget: 15}}
""",
    "shadow-wrapper": """\
extends: linear-wrapper
speculative: {{kind: ddtree, shadow: true, budget: 15}}
""",
    "too-long": """\
extends: ddtree-wrapper
flags:
  context-length: 1M
""",
}


def missing() -> tuple[str, ...]:
    """Packages of the server that this interpreter does not have."""
    return tuple(name for name in NEEDED if importlib.util.find_spec(name) is None)


def profiles(model: str) -> dict[str, str]:
    """File texts by name. model: tiny, or a folder."""
    python = quote_plain(sys.executable, "interpreter")
    return {name: text.format(python=python, model=model) for name, text in _PROFILES.items()}


def write(folder: Path, ports: dict[str, int], model: str) -> Path:
    """fleet.yaml and the profiles; returns fleet.yaml."""
    for name, text in profiles(model).items():
        (folder / f"{name}.yaml").write_text(text, "utf-8")
    path = folder / "fleet.yaml"
    path.write_text(FLEET.format_map(ports), "utf-8")
    return path
