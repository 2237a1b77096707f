"""Models, locks and commands as the check sees them, and how requirements and imports are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ddtree_console.hostside import check_env, env_cuda, env_imports, env_launch, env_packages
from ddtree_console.hostside.roots import Roots
from tests.hostside.env.case import Case, said
from tests.hostside.env.fake import DRAFT, model


@pytest.mark.parametrize(
    ("change", "said_of"),
    [
        ({"vocab_size": 32000}, "vocab_size 32000, the target has 151936"),
        ({"hidden_size": 2048}, "hidden_size 2048, the target has 1024"),
        ({"num_target_layers": 36}, "made for a target of 36 layers, this one has 28"),
        ({"dflash_config": {"mask_token_id": 151936, "target_layer_ids": [1]}}, "mask_token_id 151936 is outside"),
        ({"dflash_config": {"mask_token_id": 5, "target_layer_ids": [1, 28]}}, "target_layer_ids [28] are outside"),
    ],
)
def test_a_draft_of_another_target(good: Case, change: dict[str, Any], said_of: str) -> None:
    model(good.models / "draft", {**DRAFT, **change}, tokenizer=False)
    state, evidence, remedy = said(good.pair(), "draft fits target")
    assert (state, said_of in evidence) == ("fail", True), evidence
    assert remedy == "use the draft that was trained for this target"
    assert said(good.pair(), "model")[0] == "ok"


def test_another_block_size_and_configs_that_lack_keys(good: Case) -> None:
    good.flags = "--speculative-dflash-block-size 8"
    assert said(good.pair(), "draft fits target")[:2] == (
        "warn",
        "block size 8 is asked for, the draft was trained with 16",
    )
    good.flags = ""
    model(good.models / "draft", {"hidden_size": 1024}, tokenizer=False)
    state, evidence, _ = said(good.pair(), "draft fits target")
    assert (state, evidence.startswith("not known, because vocab_size is not in both configs")) == ("unknown", True)


@pytest.mark.parametrize(
    ("damage", "evidence"),
    [
        (lambda folder: (folder / "config.json").write_text("{"), "config.json does not parse"),
        (lambda folder: (folder / "config.json").unlink(), "config.json: No such file"),
        (lambda folder: (folder / "model-00002-of-00002.safetensors").unlink(), "00002.safetensors does not exist"),
        (lambda folder: (folder / "model-00002-of-00002.safetensors").write_bytes(b""), "is empty"),
        (lambda folder: (folder / "model.safetensors.index.json").write_text("[]"), "names no shards"),
    ],
)
def test_a_model_that_is_not_whole(good: Case, damage: Any, evidence: str) -> None:
    damage(good.models / "target")
    found = good.pair()
    assert (found["model"]["state"], evidence in found["model"]["evidence"]) == ("fail", True), found["model"]
    assert found["draft"]["state"] == "ok"


def test_dummy_weights_are_not_looked_for(good: Case) -> None:
    for file in (good.models / "target").glob("*.safetensors*"):
        file.unlink()
    assert said(good.pair(), "model")[0] == "fail"
    good.flags = "--load-format dummy --skip-tokenizer-init"
    found = good.pair()
    assert found["model"]["state"] == "ok"
    assert "tokenizer" not in found


def test_a_lock_that_a_killed_build_left(good: Case, tmp_path: Path) -> None:
    cache = tmp_path / "extensions"
    good.variables["TORCH_EXTENSIONS_DIR"] = str(cache)
    (cache / "py311_cu128/ops").mkdir(parents=True)
    lock = cache / "py311_cu128/ops/lock"
    lock.write_text("")
    os.utime(lock, (1, 1))
    state, evidence, remedy = said(good.look(), "jit locks")
    assert (state, remedy, str(lock) in evidence) == ("fail", f"rm {lock}", True)
    with lock.open():
        assert said(good.look(), "jit locks")[:2] == ("warn", f"a build runs: {lock} (pid {os.getpid()})")
    lock.unlink()
    assert said(good.look(), "jit locks")[0] == "ok"


def test_a_command_that_is_no_python_is_said_to_be_unknown(tmp_path: Path) -> None:
    about = env_launch.target(Roots(), "[Service]\nExecStart=/bin/sleep 5\n")
    found = {r["finding"]["name"]: r["finding"] for r in check_env.look(Roots(), about, "a")}
    assert (found["interpreter"]["state"], "is no Python program" in found["interpreter"]["evidence"]) == (
        "unknown",
        True,
    )
    assert not [f for f in found.values() if f["state"] == "fail"]


def test_tags_versions_and_markers() -> None:
    assert [env_cuda.of_tag(v) for v in ("2.9.1+cu128", "2.11.0+cu130", "0.3.21+cu12", "1.0", "2.9.1+cpu")] == [
        "12.8", "13.0", "12", "", "",
    ]  # fmt: skip
    cases = {
        ("2.9.1+cu128", "==2.9.1"): True, ("2.9.1", "==2.9.0"): False, ("0.3.21", ">=0.3.20,<0.4"): True,
        ("1.4.2", "~=1.4.1"): True, ("1.5.0", "~=1.4.1"): False, ("2.1", "==2.*"): True, ("2.1", "!=2.*"): False,
        ("1.0", ""): True, ("1.10", ">1.9"): True, ("3.0", "<=2"): False,
    }  # fmt: skip
    assert {case: env_packages.satisfies(*case) for case in cases} == cases
    known = {"python_version": "3.11", "sys_platform": "linux", "platform_machine": "x86_64"}
    markers = {
        "": True, "python_version < '3.9'": False, "python_version >= '3.10'": True, "sys_platform == 'linux'": True,
        "sys_platform == 'win32' or python_version > '3'": True, "platform_machine in 'x86_64 arm64'": True,
        "(sys_platform == 'linux' and python_version < '3')": False, "what ever": False, "sys_platform ==": False,
    }  # fmt: skip
    assert {marker: env_packages.holds(marker, known) for marker in markers} == markers


def test_relative_imports_and_parents_are_followed(tmp_path: Path) -> None:
    files = {
        "__init__.py": "from . import base\n",
        "base.py": "import json, top_a as a\n",
        "run/__init__.py": "",
        "run/start.py": "from ..deep.er import (x,\n    y)\nfrom .gone import z\nimport pkg.base.x.y\n",
        "deep/er.py": "from __future__ import annotations\nimport top_b.sub\n",
    }
    for name, text in files.items():
        (tmp_path / "pkg" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pkg" / name).write_text(text)
    scan = env_imports.Walker("pkg", str(tmp_path / "pkg"), 1e12).start("pkg.run.start")
    assert sorted((m.name, Path(m.by).name, m.line) for m in scan.missing) == [
        ("pkg.base.x", "start.py", 4),
        ("pkg.run.gone", "start.py", 3),
    ]
    assert {"top_a", "top_b", "json"} <= set(scan.outside)


def test_a_scan_that_runs_out_of_time_says_so(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("import json\n")
    assert not env_imports.Walker("pkg", str(tmp_path), 0.0).start("pkg").whole
