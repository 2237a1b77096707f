"""The carried folder on PYTHONPATH alone: stock's own loader finds the plug-in, and others keep loading."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ddtree_console.hostside import inspect_dists
from ddtree_console.hostside.carry import differs, files_of
from ddtree_console.transport import carried

SCRIPT = """
import json, logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm as Known
import theirs
told = {"theirs": theirs.loaded, "torch": "torch" in sys.modules}
try:
    algorithm = Known.from_string("ddtree")
except ValueError as error:
    told["unknown"] = str(error)
else:
    told["dflash"], told["overlap"] = algorithm.is_dflash(), algorithm.supports_spec_v2()
    class Args:
        speculative_draft_model_path = None
    try:
        algorithm.validate_server_args(Args())
    except ValueError as error:
        told["refused"] = str(error)
import argparse
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
told["parsed"] = {}
if len(sys.argv) > 1:
    told["parsed"] = vars(parser.parse_args(sys.argv[1:]))
import os
told["env"] = {k: v for k, v in os.environ.items() if k.startswith("DDTREE_")}
print(json.dumps(told))
"""


def unpack(files: dict[str, bytes], where: Path) -> Path:
    """The archive's files in a folder."""
    for name, data in files.items():
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return where


def dist(where: Path, name: str, version: str, entry_points: str = "") -> None:
    """A distribution's metadata."""
    folder = where / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if entry_points:
        (folder / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def site(stock: Path, tmp_path: Path) -> Path:
    """An environment: the wheel's own plug-in loader and registry, stand-ins for what they import, another plug-in."""
    base = tmp_path / "site"
    for name in ("plugins/__init__.py", "plugins/hook_registry.py", "speculative/spec_info.py",
                 "speculative/spec_registry.py", "environ.py"):  # fmt: skip
        target = base / "sglang/srt" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((stock / "sglang/srt" / name).read_text())
    for name in ("sglang", "sglang/srt", "sglang/srt/speculative", "sglang/srt/debug_utils"):
        (base / name).mkdir(exist_ok=True)
        (base / name / "__init__.py").touch()
    (base / "sglang/srt/debug_utils/cuda_coredump.py").touch()
    (base / "sglang/srt/server_args.py").write_text(
        "class ServerArgs:\n    @staticmethod\n    def add_cli_args(parser):\n        parser.add_argument('--model')\n"
    )
    (base / "theirs.py").write_text("loaded = False\n\ndef load():\n    global loaded\n    loaded = True\n")
    dist(base, "their_servicer", "1.0", "[sglang.srt.plugins]\ntheir-servicer = theirs:load\n")
    return base


def run(site: Path, carried_to: Path, version: str, *args: str, **env: str) -> tuple[dict[str, Any], str]:
    """(what the child says, its log)."""
    dist(site, "sglang", version)
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("DDTREE_", "SGLANG_"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *args], capture_output=True, text=True, check=False, cwd=site,
        env={**plain, "PYTHONPATH": f"{carried_to}:{site}", **env},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The archive, unpacked as on a host."""
    return unpack(dict(carried.plugin().files), tmp_path / "carried")


def test_stock_finds_it_and_others_keep_loading(site: Path, there: Path) -> None:
    told, log = run(site, there, "0.5.12", "--speculative-ddtree-budget", "63", "--speculative-ddtree-mode", "shadow")
    assert told["theirs"] and told["dflash"] and not told["overlap"] and not told["torch"]
    assert told["refused"] == "DDTREE refuses: it needs --speculative-draft-model-path"
    assert told["env"] == {"DDTREE_BUDGET": "63", "DDTREE_MODE": "shadow"}
    assert "Executed general plugin: ddtree" in log and "Executed general plugin: their-servicer" in log


@pytest.mark.parametrize("version", ["0.5.11", "0.5.13", "0.5.23", "0.5.12.post1"])
def test_another_release_gets_a_stub_with_the_reason(site: Path, there: Path, version: str) -> None:
    told, _ = run(site, there, version)
    assert told["theirs"] and told["env"] == {}
    assert told["refused"] == (f"DDTREE refuses: SGLang {version} is not among the tested releases (0.5.12)")


def test_a_changed_build_gets_a_stub_that_names_what_changed(site: Path, there: Path) -> None:
    path = site / "sglang/srt/speculative/spec_registry.py"
    path.write_text(
        path.read_text().replace("def create_worker(self, server_args:", "def create_worker(self, args, server_args:")
    )
    told, _ = run(site, there, "0.5.12")
    assert told["refused"].startswith("DDTREE refuses: SGLang 0.5.12 is not as tested: ")
    assert "CustomSpecAlgo.create_worker takes self, args, server_args" in told["refused"]


def test_an_allow_list_decides(site: Path, there: Path) -> None:
    told, _ = run(site, there, "0.5.12", SGLANG_PLUGINS="their-servicer")
    assert told["theirs"] and told["unknown"] == "Unknown speculative algorithm name: ddtree"


def test_the_archive() -> None:
    archive = carried.plugin()
    assert archive is carried.plugin() and len(archive.hash) == 16 and files_of(archive.data) == archive.files
    assert all(n.startswith(("ddtree_kernels/__init__.py", "ddtree_kernels/sglang_plugin/", "ddtree_sglang_plugin-"))
               for n in archive.files)  # fmt: skip
    assert not any("sglang_plugin" in name for name in carried.kernels().files)


def test_its_record_is_an_installers(there: Path) -> None:
    """The console's own inspector, which reads RECORD as an installer wrote it, finds the plug-in unchanged."""
    found = inspect_dists.installed([str(there)])
    mine = found["ddtree-sglang-plugin"]
    assert inspect_dists.compare(mine, True) == ([], "")
    points = [(name, module) for name, module, _ in inspect_dists.entry_points(found, "")]
    assert points == [("ddtree", "ddtree_kernels.sglang_plugin.plugin")]
    assert differs(there, carried.plugin().files) == ""
    (there / "ddtree_kernels/sglang_plugin/walk.py").write_text("pass\n")
    changed, _ = inspect_dists.compare(mine, True)
    assert changed == [f"{there}/ddtree_kernels/sglang_plugin/walk.py (other size)"]
