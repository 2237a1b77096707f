"""A unit's environment as the check sees it: what is well, each thing that is wrong, and the remedy that mends it."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ddtree_console.hostside import check_cuda, check_env, check_model, env_cuda, env_imports, env_launch, env_packages
from ddtree_console.hostside.check import cuda_from
from ddtree_console.hostside.check_finding import Finding
from ddtree_console.hostside.roots import Roots
from tests.hostside.env.fake import DRAFT, TARGET, Environment, Libraries, model

UNIT = """[Service]
{user}WorkingDirectory=/
{env}ExecStart={python} -m sglang.launch_server --model-path {models}/target --speculative-algorithm DFLASH \\
    --speculative-draft-model-path {models}/draft --port 30000 {flags}
"""
DRIVER = ("580.95.05", "13.0")


class Case:
    """One environment with its unit; `look` is what the check of it says, by name."""

    def __init__(self, env: Environment, folder: Path) -> None:
        self.env, self.models = env, folder / "models"
        self.variables: dict[str, str] = {}
        self.user = ""
        self.flags = ""
        model(self.models / "target", TARGET)
        model(self.models / "draft", DRAFT, tokenizer=False)

    def target(self) -> env_launch.Target:
        lines = "".join(f'Environment="{k}={v}"\n' for k, v in self.variables.items())
        user = f"User={self.user}\n" if self.user else ""
        values = {"user": user, "env": lines, "python": self.env.python, "models": self.models, "flags": self.flags}
        return env_launch.target(Roots(), UNIT.format(**values))

    def look(self, arch: int | None = 90, driver: tuple[str, str] = DRIVER) -> dict[str, Mapping[str, Any]]:
        about = self.target()
        found: dict[str, Mapping[str, Any]] = {}
        for row in check_env.look(Roots(), about, "qwen"):
            if "finding" in row:
                found[row["finding"]["name"]] = row["finding"]
            else:
                cuda = cuda_from(row["facts"]["cuda"])
                found.update(rows(check_cuda.judge(cuda, about.env, [arch], *driver)))
        return found

    def cuda(self, arch: int | None = 90, driver: tuple[str, str] = DRIVER) -> dict[str, Mapping[str, Any]]:
        """The CUDA side alone, as this user: no interpreter is started."""
        path = [self.env.site_at]
        cuda = env_cuda.look(self.variables, "/", path, env_packages.installed(path))
        return rows(check_cuda.judge(cuda, self.variables, [arch], *driver))

    def pair(self) -> dict[str, Mapping[str, Any]]:
        """The models alone, as this user."""
        return rows(check_model.check(self.target(), {}))


def rows(found: Iterable[Finding]) -> dict[str, Mapping[str, Any]]:
    return {one.name: asdict(one) for one in found}


@pytest.fixture
def good(env: Environment, tmp_path: Path) -> Case:
    """An environment in which everything is as it should be."""
    env.torch("2.9.1", "12.8")
    env.kernel()
    env.sglang("0.5.12")
    return Case(env, tmp_path)


def said(found: Mapping[str, Mapping[str, Any]], name: str) -> tuple[str, str, str]:
    one = found[name]
    return one["state"], one["evidence"], one["remedy"]


def test_a_good_environment(good: Case) -> None:
    found = good.look()
    named = (
        "interpreter",
        "modules",
        "requirements",
        "cuda abi",
        "cuda libraries",
        "driver",
        "gpu architecture",
        "jit locks",
    )
    assert {n: found[n]["state"] for n in named} == dict.fromkeys(named, "ok"), found
    models = ("model", "draft", "tokenizer", "draft fits target")
    assert {n: found[n]["state"] for n in models} == dict.fromkeys(models, "ok"), found
    assert "torch 2.9.1+cu128 (CUDA 12.8), sgl-kernel 0.3.21 (CUDA 12)" in found["cuda abi"]["evidence"]
    assert f"{good.env.site_at}/nvidia/cuda_runtime/lib/libcudart.so.12" in os.path.normpath(
        found["cuda libraries"]["evidence"].split(" ")[1]
    )


def test_kernels_for_another_cuda_and_the_remedy_that_finds_their_libraries(good: Case) -> None:
    # no machine has CUDA 99 in its linker's cache
    good.env.kernel(major="99")
    state, evidence, remedy = said(good.cuda(), "cuda abi")
    assert state == "fail"
    assert "torch 2.9.1+cu128 (CUDA 12.8), sgl-kernel 0.3.21 (CUDA 99): sgl-kernel needs libcudart.so.99" in evidence
    assert remedy == "install sgl-kernel built for CUDA 12.8, or torch for CUDA 99"
    folder = good.env.runtime("99", "cu99")
    state, _, remedy = said(good.cuda(), "cuda abi")
    assert (state, remedy) == ("fail", f"set env LD_LIBRARY_PATH to {folder}")
    good.variables["LD_LIBRARY_PATH"] = folder
    found = good.cuda()
    state, evidence, _ = said(found, "cuda abi")
    assert (state, "two CUDA runtimes" in evidence) == ("warn", True)
    assert f"libcudart.so.99 {folder}/libcudart.so.99 (LD_LIBRARY_PATH)" in found["cuda libraries"]["evidence"]
    good.env.torch("2.9.1", "99.0")
    assert said(good.cuda(), "cuda abi")[0] == "ok"


def test_a_kernel_wheel_without_its_libraries_is_judged_by_its_tag(good: Case) -> None:
    for file in good.env.site.glob("sgl_kernel/*/common_ops*"):
        file.unlink()
    state, evidence, remedy = said(good.cuda(), "cuda abi")
    assert (state, "half installed" in evidence, remedy) == ("fail", True, "install sgl-kernel again")


def test_a_library_of_the_system_that_is_missing(good: Case) -> None:
    good.env.kernel(more=["libnuma.so.77"])
    state, evidence, remedy = said(good.cuda(), "cuda abi")
    assert (state, "needs libnuma.so.77" in evidence) == ("fail", True)
    assert remedy == "install what libnuma.so.77 belongs to"


def test_torch_that_cannot_find_its_own_runtime(env: Environment, tmp_path: Path) -> None:
    env.torch("2.9.1", "98.1", own_libraries=False)
    env.sglang()
    state, evidence, _ = said(Case(env, tmp_path).cuda(), "cuda abi")
    assert (state, "torch needs libcudart.so.98" in evidence) == ("fail", True)


def test_an_older_runtime_put_first(good: Case, tmp_path: Path, libraries: Libraries) -> None:
    folder = tmp_path / "cuda-12.4"
    folder.mkdir()
    (folder / "libcudart.so.12.4.99").write_bytes(libraries.make("libcudart.so.12"))
    (folder / "libcudart.so.12").symlink_to("libcudart.so.12.4.99")
    # RPATH comes before LD_LIBRARY_PATH: torch's own one is taken
    good.variables["LD_LIBRARY_PATH"] = str(folder)
    assert said(good.cuda(), "cuda libraries")[0] == "ok"
    (good.env.site / "nvidia/cuda_runtime/lib/libcudart.so.12").unlink()
    state, evidence, remedy = said(good.cuda(), "cuda libraries")
    assert (state, remedy) == ("warn", f"take {folder} out of LD_LIBRARY_PATH")
    assert "is CUDA 12.4, torch was built for 12.8" in evidence


@pytest.mark.parametrize(
    ("arch", "sass", "state"),
    [
        (90, (80, 90), "ok"),
        (86, (80, 90), "ok"),
        (120, (80, 90), "fail"),
        (75, (80, 90), "fail"),
        (None, (80,), "unknown"),
    ],
)
def test_the_gpus_architecture(good: Case, arch: int | None, sass: tuple[int, ...], state: str) -> None:
    good.env.kernel(sass=sass)
    found, evidence, remedy = said(good.cuda(arch), "gpu architecture")
    assert found == state, evidence
    if state == "fail":
        assert f"GPU is sm_{arch}" in evidence
        assert f"has sm_{arch}" in remedy
        good.env.kernel(sass=(*sass, arch or 0))
        assert said(good.cuda(arch), "gpu architecture")[0] == "ok"


def test_the_folder_that_the_gpu_chooses_is_looked_at(good: Case) -> None:
    good.env.kernel(sass=(80, 90))
    good.env.write(
        "sgl_kernel/sm100/common_ops.abi3.so",
        good.env.libraries.make("common_ops.abi3.so", ["libgone.so.5"], sass=(120,)),
    )
    assert said(good.cuda(90), "cuda abi")[0] == "ok"
    assert "libgone.so.5" in said(good.cuda(120), "cuda abi")[1]


@pytest.mark.parametrize(
    ("version", "supports", "state"),
    [("580.95.05", "13.0", "ok"), ("550.54.15", "12.4", "ok"), ("470.82.01", "11.4", "fail"), ("470.82.01", "", "fail"),
     ("", "", "unknown")],
)  # fmt: skip
def test_the_drivers_cuda(good: Case, version: str, supports: str, state: str) -> None:
    found = good.cuda(90, (version, supports))
    assert found["driver"]["state"] == state, found["driver"]
    if state == "fail":
        assert "525" in found["driver"]["remedy"]


def test_a_missing_module_is_named_with_file_and_line_and_its_installation_mends_it(good: Case) -> None:
    good.env.sglang(imports="import orjson\ntry:\n    import not_needed\nexcept ImportError:\n    pass\n")
    state, evidence, remedy = said(good.look(), "modules")
    assert state == "fail"
    assert f"missing: orjson ({good.env.site_at}/sglang/srt/server_args.py:3)" in evidence
    assert remedy.endswith("-m pip install orjson")
    assert "not_needed" not in evidence
    good.env.write("orjson/__init__.py", "raise RuntimeError('it was imported')\n")
    assert said(good.look(), "modules")[0] == "ok"


def test_a_module_that_an_import_hook_brings_is_there(good: Case) -> None:
    good.env.sglang(imports="import hooked_in\n")
    outside = good.env.root / good.env.at.lstrip("/") / "elsewhere/hooked_in"
    outside.mkdir(parents=True)
    (outside / "__init__.py").write_text("")
    good.env.write("hook.pth", "import _hook_in\n")
    finder = f"""import importlib.machinery, importlib.util, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "hooked_in":
            return importlib.util.spec_from_file_location(name, {str(outside / "__init__.py")!r})
sys.meta_path.append(Finder())
"""
    good.env.write("_hook_in.py", finder)
    assert said(good.look(), "modules")[0] == "ok"


def test_a_text_that_looks_like_an_import_is_none(good: Case) -> None:
    good.env.sglang(imports='"""\nimport in_a_docstring\n"""\n')
    assert said(good.look(), "modules")[0] == "ok"


def test_a_package_that_is_not_whole(good: Case) -> None:
    (good.env.site / "sglang/srt/server_args.py").unlink()
    state, evidence, remedy = said(good.look(), "modules")
    assert (state, "missing: sglang.srt.server_args" in evidence) == ("fail", True)
    assert remedy == "install sglang again: it is not whole"


def test_a_package_that_is_not_there(env: Environment, tmp_path: Path) -> None:
    state, evidence, _ = said(Case(env, tmp_path).look(), "modules")
    assert (state, "sglang: no such module" in evidence) == ("fail", True)


def test_requirements_of_the_metadata(good: Case) -> None:
    wants = (
        "torch==2.9.1",
        "sgl-kernel==0.3.22",
        "orjson",
        "absent; extra == 'dev'",
        "old; python_version < '3'",
        "xgrammar>=0.1",
    )
    good.env.sglang(requires=wants)
    good.env.package("xgrammar", "0.1.21")
    state, evidence, remedy = said(good.look(), "requirements")
    assert state == "warn"
    assert evidence == "sglang 0.5.12: sgl-kernel is 0.3.21, not ==0.3.22; orjson is not installed"
    assert remedy.endswith("'sgl-kernel==0.3.22' 'orjson'")


def test_half_installed_metadata_blocks_nothing_else(good: Case) -> None:
    (good.env.site / "sglang-0.5.12.dist-info/METADATA").unlink()
    found = good.look()
    assert "half installed" in found["requirements"]["evidence"]
    assert found["modules"]["state"] == "ok"


def test_an_interpreter_that_is_gone(good: Case) -> None:
    link = good.env.path("bin/python3")
    link.unlink()
    link.symlink_to("/opt/gone/python3")
    state, evidence, remedy = said(good.look(), "interpreter")
    assert (state, remedy) == ("fail", "make the environment again")
    assert f"{good.env.python} is a link to /opt/gone/python3, which is not there" in evidence


def test_an_environment_made_for_another_python(good: Case) -> None:
    good.env.path("lib").rename(good.env.path("lib-old"))
    (good.env.path("lib/python3.7") / "site-packages").mkdir(parents=True)
    state, evidence, _ = said(good.look(), "interpreter")
    assert (state, "was made for python3.7" in evidence) == ("fail", True)


def test_an_interpreter_that_fails_says_why(good: Case) -> None:
    link = good.env.path("bin/python3")
    link.unlink()
    link.write_text("#!/bin/sh\necho 'libpython3.so: cannot open' >&2\nexit 127\n")
    link.chmod(0o755)
    assert "libpython3.so: cannot open" in said(good.look(), "interpreter")[1]


def test_the_units_own_environment_counts(good: Case) -> None:
    good.env.sglang(imports="import beside\n")
    place = good.models / "modules"
    place.mkdir()
    (place / "beside.py").write_text("")
    assert said(good.look(), "modules")[0] == "fail"
    good.variables["PYTHONPATH"] = str(place)
    assert said(good.look(), "modules")[0] == "ok"


SYSTEM = "/usr/bin/python3"
nobody = pytest.mark.skipif(
    os.geteuid() != 0 or not Path(SYSTEM).exists(), reason="needs root, and a Python that everybody may run"
)


def open_to_all(path: Path) -> None:
    """Folders of a test are closed to others by default."""
    for part in [path, *path.parents][:-2]:
        part.chmod(part.stat().st_mode | stat.S_IROTH | stat.S_IXOTH)


@nobody
def test_everything_is_read_as_the_units_user(tmp_path: Path, libraries: Libraries) -> None:
    told = subprocess.run([SYSTEM, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True)
    env = Environment(Path("/"), str(tmp_path / "env"), libraries, SYSTEM, told.stdout.decode().strip())
    env.sglang(requires=())
    env.package("torch", "2.9.1", files={"torch/__init__.py": ""})
    good = Case(env, tmp_path)
    good.user = "nobody"
    open_to_all(good.models)
    assert pwd.getpwnam("nobody").pw_uid
    found = good.look()
    assert found["model"]["state"] == "ok", found["model"]
    assert found["modules"]["state"] == "ok", found["modules"]
    shard = next((good.models / "target").glob("*.safetensors"))
    shard.chmod(0o600)
    state, evidence, _ = said(good.look(), "model")
    assert (state, f"as nobody: {shard} is closed to this user" in evidence) == ("fail", True)
    (good.models / "target").chmod(0o700)
    assert "is closed to this user" in said(good.look(), "model")[1]


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
