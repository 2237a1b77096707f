"""The `inspect` command over real virtual environments: where the package is found, as whom, and what is broken."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddtree_console.domain.build import Build, build_from_json
from ddtree_console.hostside import inspect, inspect_help, inspect_paths
from ddtree_console.hostside.roots import Roots
from tests.builds import trees

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
RELEASE = "0.5.12"
BASE = next(p for p in ("/usr/bin/python3", sys.executable) if Path(p).exists())
VERSION = subprocess.run(
    [BASE, "-c", "import platform; print(platform.python_version())"], capture_output=True, text=True, check=True
).stdout.strip()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder that every user may pass through."""
    folder = tmp_path
    while folder != folder.parent and os.access(folder, os.W_OK) and folder.stat().st_uid == os.geteuid():
        folder.chmod(folder.stat().st_mode | 0o055)
        folder = folder.parent
    yield tmp_path


class Env:
    """A virtual environment without pip, and the command asked about it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # by hand: the one that runs these tests may lie where other users cannot go
        self.site = folder / f"venv/lib/python{VERSION.rpartition('.')[0]}/site-packages"
        self.site.mkdir(parents=True)
        (folder / "venv/bin").mkdir()
        (folder / "venv/bin/python").symlink_to(BASE)
        (folder / "venv/pyvenv.cfg").write_text(f"home = {Path(BASE).parent}\nversion = {VERSION}\n")
        self.python = str(folder / "venv/bin/python")
        var = folder / "var"
        var.mkdir(mode=0o777)
        var.chmod(0o777)
        self.roots = Roots(var=str(var), path=str(folder / "roots.json"))

    def install(self, files: dict[str, str]) -> None:
        trees.write(files, self.site)

    def look(self, **more: Any) -> Build:
        raw = {"engine": "sglang", "python": self.python, "workdir": "/", "env": {}, **more}
        return build_from_json(json.loads(json.dumps(inspect.inspect(self.roots, raw))))


@pytest.fixture
def env(home: Path) -> Env:
    return Env(home)


def has_flags(build: Build) -> bool:
    return {"host", "disable-piecewise-cuda-graph", "help"} <= {f.name for f in build.flags}


def test_an_installed_package_is_read_and_never_imported(env: Env) -> None:
    torch = {
        "torch/__init__.py": "raise SystemExit('torch was imported')\n",
        "torch/version.py": "from typing import Optional\n__version__ = '2.11.0'\ncuda: Optional[str] = '13.0'\n",
        "torch-2.11.0.dist-info/METADATA": "Name: torch\nVersion: 2.11.0\n",
        "sgl_kernel-0.4.2+cu128.dist-info/METADATA": "Name: sgl-kernel\nVersion: 0.4.2+cu128\n",
        "sgl_kernel-0.4.2+cu128.dist-info/RECORD": "torch/__init__.py,,\n",
    }
    env.install({**trees.dist(RELEASE, trees.PLAIN), **torch})
    build = env.look()
    assert has_flags(build) and (build.source, build.release, build.problems) == ("ast", RELEASE, ())
    assert build.package == str(env.site / "sglang")
    assert build.cuda == "13.0" and build.versions["torch"] == "2.11.0+cu130"
    assert build.versions["sgl-kernel"] == "0.4.2+cu128" and build.pins == {"torch": "==2.11.0"}
    assert build.versions["python"] == VERSION
    assert build.algorithms == ("DFLASH", "EAGLE", "NEXTN") and build.ddtree == {} and build.patched == ()


def test_the_command_itself(env: Env) -> None:
    env.install(trees.dist(RELEASE, trees.PLAIN))
    code = Path(inspect.__file__).parents[2]
    argv = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(code)!r})\n"
            "from ddtree_console.hostside.__main__ import main\nsys.exit(main(['inspect']))"]  # fmt: skip
    asked = json.dumps({"engine": "sglang", "python": env.python, "env": {"XDG_CACHE_HOME": "/nonexistent"}})
    done = subprocess.run(argv, input=asked, capture_output=True, text=True, env={"HOME": str(env.folder)})
    assert done.returncode == 0 and has_flags(build_from_json(json.loads(done.stdout)))
    bad = subprocess.run(argv, input="[]\n", capture_output=True, text=True)
    assert bad.returncode == 2 and json.loads(bad.stdout)["ok"] is False


def test_the_interpreter_of_a_console_script(env: Env) -> None:
    env.install(trees.dist(RELEASE, trees.PLAIN))
    script = env.folder / "venv/bin/sglang"
    script.write_text(f"#!{env.python} -s\nprint()\n")
    build = env.look(python="", command=[str(script), "serve", "--port", "1"])
    assert build.python == env.python and has_flags(build)


def test_where_it_is_found(env: Env) -> None:
    source = trees.write(trees.PLAIN, env.folder / "src")
    # a path file
    pth = env.site / "fork.pth"
    pth.write_text(f"{source}\n")
    assert env.look().package == str(source / "sglang")
    pth.unlink()
    # PYTHONPATH of the unit, and of its Environment
    assert env.look(pythonpath=str(source)).package == str(source / "sglang")
    assert env.look(env={"PYTHONPATH": str(source)}).package == str(source / "sglang")
    # a file of the unit's Environment, which outranks it
    file = env.folder / "environment"
    file.write_text(f"# more\nPYTHONPATH='{source}'\n")
    file.chmod(0o600)
    assert env.look(pythonpath="/x", environment_files=[f"-{file}"]).package == str(source / "sglang")
    # `python -m` puts the working directory first
    assert env.look(workdir=str(source)).package == str(source / "sglang")
    # setuptools' editable finder, run by the interpreter and read without it
    finder = env.site / "__editable___sglang_0_5_12_finder.py"
    mapping = {"sglang": str(source / "sglang")}
    finder.write_text(f"""
from __future__ import annotations
import sys
from importlib.machinery import PathFinder
MAPPING: dict[str, str] = {mapping!r}
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return PathFinder.find_spec(name, [{str(source)!r}]) if name in MAPPING else None
def install():
    sys.meta_path.append(Finder)
""")
    (env.site / "__editable__.sglang.pth").write_text(f"import {finder.stem}; {finder.stem}.install()\n")
    (env.site / "sglang-0.5.12.dist-info").mkdir()
    (env.site / "sglang-0.5.12.dist-info/METADATA").write_text("Name: sglang\nVersion: 0.5.12.dev3\n")
    about = {"url": f"file://{source}", "dir_info": {"editable": True}}
    (env.site / "sglang-0.5.12.dist-info/direct_url.json").write_text(json.dumps(about))
    (env.site / "sglang-0.5.12.dist-info/RECORD").write_text(f"{finder.name},,\n__editable__.sglang.pth,,\n")
    build = env.look()
    assert (build.package, build.release) == (str(source / "sglang"), "0.5.12.dev3") and has_flags(build)
    assert any("editable install" in p for p in build.problems)
    worked_out = inspect_paths.work_out(env.python, ["sglang"], {}, "/", "a reason")
    assert worked_out.found["sglang"] == (str(source / "sglang"),)


def test_a_source_tree_that_hides_the_installed_package(env: Env) -> None:
    env.install(trees.dist("0.5.9", trees.PLAIN))
    source = trees.write(trees.PLAIN, env.folder / "src")
    build = env.look(workdir=str(source))
    assert build.release == "0.5.12", "the version of what would run, not of what is installed"
    assert any("sglang 0.5.9" in p and "is not used" in p for p in build.problems)


def test_an_interpreter_that_does_not_run_is_worked_out_from_its_files(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.install(trees.dist(RELEASE, trees.PLAIN))
    python = Path(env.python)
    python.unlink()
    python.write_text("#!/bin/sh\necho 'error while loading shared libraries' >&2\nexit 127\n")
    python.chmod(0o755)
    build = env.look()
    assert has_flags(build) and build.release == RELEASE
    assert any("was not asked" in p and "error while loading shared libraries" in p for p in build.problems)
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(inspect_paths, "SECONDS", 0.3)
    assert any("did not answer within 0.3 s" in p for p in env.look().problems)
    python.unlink()
    gone = env.look()
    assert has_flags(gone) and any("was not asked" in p and "No such file" in p for p in gone.problems)
    assert "no absolute path" in env.look(python="python3").problems[0]


def test_half_installed_and_absent(env: Env) -> None:
    build = env.look()
    assert build.source == "none" and "finds no package sglang" in build.problems[-1]
    env.install({k: v for k, v in trees.dist(RELEASE, trees.PLAIN).items() if "dist-info" in k})
    assert "says that 0.5.12 is installed" in env.look().problems[-1]
    env.install({"sglang/__init__.py": "", "sglang/srt/__init__.py": ""})
    half = env.look()
    assert half.source == "none" and any("declares none" in p for p in half.problems)
    assert any("server_args.py (missing)" in line for line in half.patched)


def test_files_that_differ_from_their_record(env: Env) -> None:
    env.install(trees.dist(RELEASE, trees.PLAIN))
    assert env.look().patched == ()
    names = env.site / "sglang/srt/names.py"
    names.write_text(names.read_text().replace("fa3", "fa4"))  # as long as before
    (env.site / "sglang/version.py").unlink()
    assert sorted(env.look().patched) == [
        f"{names} (other content)",
        f"{env.site}/sglang/version.py (missing)",
    ]
    (env.site / f"sglang-{RELEASE}.dist-info/RECORD").unlink()
    assert any("no RECORD to compare with" in p for p in env.look().problems)


def test_what_was_read_is_kept_until_a_file_changes(env: Env) -> None:
    env.install(trees.dist(RELEASE, trees.PLAIN))
    first, second = env.look(), env.look()
    assert (first.cached, second.cached) == (False, True)
    assert first.flags == second.flags and first.algorithms == second.algorithms
    args = env.site / "sglang/srt/server_args.py"
    args.write_text(args.read_text().replace("--host", "--most"))
    third = env.look()
    assert not third.cached and {"most"} <= {f.name for f in third.flags}
    # a file that was not there when it was read
    fork = trees.DB_GUO["sglang/srt/arg_groups/tree_args.py"]
    env.install({"sglang/srt/arg_groups/__init__.py": "", "sglang/srt/arg_groups/new.py": fork})
    assert "speculative-dflash-enable-ddtree" in {f.name for f in env.look().flags}


def test_plug_ins_are_told_and_those_not_allowed_are_not(env: Env) -> None:
    env.install({**trees.dist(RELEASE, trees.PLAIN), **trees.PLUGIN})
    build = env.look()
    assert build.plugins == {"ddtree": "ddtree-plugin 1.2"} and "DDTREE" in build.algorithms
    assert build.ddtree["algorithm"] == "DDTREE" and build.ddtree["plugin"] == "ddtree-plugin 1.2"
    assert "ddtree-report" in {f.name for f in build.flags}
    other = env.look(env={"SGLANG_PLUGINS": "smg-servicer"})
    assert other.plugins == {} and other.ddtree == {} and "DDTREE" not in other.algorithms


@root
def test_it_is_read_as_the_units_user(env: Env) -> None:
    env.install(trees.dist(RELEASE, trees.PLAIN))
    # runs when the interpreter starts: as whom, and with which environment
    (env.site / "who.pth").write_text(
        "import os; open(os.environ['SAY'], 'a').write(f'{os.geteuid()} {os.getcwd()}\\n')\n"
    )
    said = env.folder / "var/said"
    assert has_flags(env.look(user="nobody", env={"SAY": str(said)}))
    assert {line.split()[0] for line in said.read_text().splitlines()} == {"65534"}
    # what that user may not read is not known, however much root may
    (env.site / "sglang/srt").chmod(0o700)
    assert env.look(user="nobody").source == "none"
    assert "no user nosuchuser" in env.look(user="nosuchuser").problems[0]


@root
def test_root_runs_nothing_that_another_user_can_change(env: Env) -> None:
    env.install(trees.dist(RELEASE, trees.PLAIN))
    said = env.folder / "var/said"
    (env.site / "who.pth").write_text(f"import os; open({str(said)!r}, 'a').write('ran')\n")
    os.chown(env.site / "who.pth", 65534, 65534)
    build = env.look()
    assert has_flags(build) and not said.exists()
    assert any("it is not run as root" in p and "who.pth" in p for p in build.problems)
    os.chown(env.site / "who.pth", 0, 0)
    mine = env.folder / "lib"
    mine.mkdir()
    os.chown(mine, 65534, 65534)
    assert any("it is not run as root" in p for p in env.look(env={"PYTHONPATH": str(mine)}).problems)
    why, clean = inspect_paths.fit_for_root(env.python, {"LD_PRELOAD": "/x.so", "LD_LIBRARY_PATH": f"{mine}:/usr/lib"})
    assert why == "" and clean == {"LD_LIBRARY_PATH": "/usr/lib"}


@root
def test_root_asks_no_program_for_its_help_whose_code_another_user_can_change(env: Env) -> None:
    said, mine = env.folder / "var/said", env.folder / "mine"
    trees.write({"server/__init__.py": "", "server/__main__.py": f"open({str(said)!r}, 'w').write('ran')\n"}, mine)
    command = [env.python, "-m", "server"]
    (env.site / "mine.pth").write_text(f"{mine}\n")
    os.chown(mine, 65534, 65534)
    build = env.look(engine="generic", command=command)
    assert not said.exists() and "it is not run as root" in build.problems[-1]
    os.chown(mine, 0, 0)
    env.look(engine="generic", command=command)
    assert said.exists()


SERVER = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True, help="weights")
parser.add_argument("--mode", choices=["linear", "ddtree"], default="linear", help="how (default: linear)")
parser.add_argument("--budget", type=int)
parser.add_argument("--no-drain", action="store_true")
parser.parse_args()
"""


def test_a_program_of_an_unknown_engine_is_asked_for_its_help(env: Env) -> None:
    script = env.folder / "serve.py"
    script.write_text(SERVER)
    build = env.look(engine="generic", command=[env.python, str(script), "--model", "m"])
    assert build.source == "help" and {"model", "mode", "budget", "no-drain", "help"} == {f.name for f in build.flags}
    mode = next(f for f in build.flags if f.name == "mode")
    assert (mode.choices, mode.default, mode.kind) == (("linear", "ddtree"), "linear", "str")
    script.write_text("import sys; sys.exit('no CUDA')\n")
    failed = env.look(engine="generic", command=[env.python, str(script)])
    assert failed.source == "none" and "no CUDA" in failed.problems[-1]
    assert "taken as given" in env.look(engine="generic", command=["/bin/sh", "-c", "exec x"]).problems[-1]


def test_help_that_does_not_end_is_ended_with_all_that_it_started(env: Env) -> None:
    script, pid = env.folder / "serve.py", env.folder / "var/pid"
    script.write_text(
        f"import subprocess, pathlib\nchild = subprocess.Popen(['sleep', '60'])\npathlib.Path({str(pid)!r})"
        ".write_text(str(child.pid))\nchild.wait()\n"
    )
    with pytest.raises(ValueError, match="did not end within 1 s"):
        inspect_help.run([env.python, str(script), "--help"], {"PATH": os.environ["PATH"]}, "/", 1.0)
    try:
        child = os.pidfd_open(int(pid.read_text()))
    except ProcessLookupError:
        return
    assert select.select([child], [], [], 5)[0], "what it started still runs"
    os.close(child)


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        (["/opt/v/bin/python3", "-m", "server", "--x", "1"], ["/opt/v/bin/python3", "-m", "server", "--help"]),
        (["/opt/v/bin/python3", "-u", "-m", "server"], ["/opt/v/bin/python3", "-u", "-m", "server", "--help"]),
        (["/usr/bin/llama-server", "-m", "x"], ["/usr/bin/llama-server", "--help"]),
        (["/opt/v/bin/python3", "-c", "serve()"], []),
        (["/bin/bash", "-c", "exec serve"], []),
        (["/usr/bin/env", "serve"], []),
        (["serve"], []),
        ([], []),
    ],
)
def test_what_may_be_asked_for_its_help(command: list[str], argv: list[str]) -> None:
    assert inspect_help.argv_of(command) == argv
