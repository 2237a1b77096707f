"""A unit's environment as the check sees it: what is well, each thing that is wrong, and the remedy that mends it."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from pathlib import Path

import pytest

from tests.hostside.env.case import Case, said
from tests.hostside.env.fake import Environment, Libraries


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
