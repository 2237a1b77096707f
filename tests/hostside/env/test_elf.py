"""Libraries read without loading them, held to what the real dynamic linker does with the same files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddtree_console.hostside import env_elf, env_libs
from tests.hostside.env.fake import Libraries

LINKERS = [p for p in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1") if Path(p).exists()]


def put(folder: Path, name: str, data: bytes) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return str(folder / name)


def real(path: str, name: str, env: dict[str, str]) -> str:
    """What ld.so itself would load for `name`; '' where it finds nothing."""
    done = subprocess.run([LINKERS[0], "--list", path], env=env, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        left, arrow, right = line.strip().partition(" => ")
        if arrow and left == name:
            return "" if right.startswith("not found") else right.split(" (")[0]
    return ""


def test_names_needs_and_architectures(tmp_path: Path, libraries: Libraries) -> None:
    data = libraries.make("liba.so.1", ["libb.so.2"], runpath="$ORIGIN/x:/y", sass=(80, 90), ptx=(90,))
    found = env_elf.read(put(tmp_path, "a.so", data), gpus=True)
    assert (found.soname, found.needed) == ("liba.so.1", ("libb.so.2",))
    assert (found.runpath, found.rpath) == (("$ORIGIN/x", "/y"), ())
    assert (sorted(found.sass), sorted(found.ptx)) == ([80, 90], [90])


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", b"text", b"\x7fELF\x01\x01" + bytes(100), b"\x7fELF\x02\x01" + bytes(70)]
)
def test_what_is_no_library_says_so(tmp_path: Path, data: bytes) -> None:
    path = put(tmp_path, "x.so", data)
    try:
        assert env_elf.read(path, gpus=True).needed == ()
    except env_elf.NotElf as error:
        assert str(error)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 4000), byte=st.integers(0, 255), cut=st.integers(0, 9000))
def test_a_broken_library_never_raises_anything_else(
    tmp_path: Path, libraries: Libraries, at: int, byte: int, cut: int
) -> None:
    data = bytearray(libraries.make("liba.so.1", ["libb.so.2"], sass=(80,)))
    data[at % len(data)] = byte
    path = put(tmp_path, "x.so", bytes(data[: len(data) - cut % len(data)]))
    try:
        env_elf.read(path, gpus=True)
    except env_elf.NotElf as error:
        assert str(error)


@pytest.mark.skipif(not LINKERS, reason="no glibc linker at a known place")
@pytest.mark.parametrize("kind", ["rpath", "runpath", "none"])
@pytest.mark.parametrize("library_path", ["", "{tmp}/ld", "{tmp}/empty:{tmp}/ld"])
def test_the_search_is_that_of_the_real_linker(
    tmp_path: Path, libraries: Libraries, kind: str, library_path: str
) -> None:
    rpath, runpath = ("$ORIGIN/own" if kind == name else "" for name in ("rpath", "runpath"))
    made = libraries.make("main.so", ["libcudart.so.99"], rpath=rpath, runpath=runpath)
    main = put(tmp_path, "main.so", made)
    put(tmp_path / "own", "libcudart.so.99", libraries.make("libcudart.so.99"))
    put(tmp_path / "ld", "libcudart.so.99", libraries.make("libcudart.so.99"))
    (tmp_path / "empty").mkdir()
    env = {"LD_LIBRARY_PATH": library_path.format(tmp=tmp_path)} if library_path else {}
    found = env_libs.Linker(env).find("libcudart.so.99", env_elf.read(main))
    assert (found.path if found else "") == real(main, "libcudart.so.99", env)
    assert bool(found) == (kind != "none" or bool(env))


@pytest.mark.skipif(not LINKERS or not shutil.which("ldconfig", path="/sbin:/usr/sbin"), reason="no ldconfig")
def test_the_cache_is_read_as_ldconfig_prints_it() -> None:
    printed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    names: dict[str, str] = {}
    for line in printed.splitlines()[1:]:
        left, arrow, path = line.strip().partition(" => ")
        if arrow and env_libs.usable(path):
            names.setdefault(left.split(" (")[0], path)
    assert len(names) > 3
    assert env_libs.cache() == names


def test_no_cache_and_a_broken_one_are_empty(tmp_path: Path) -> None:
    assert env_libs.cache(str(tmp_path / "none")) == {}
    put(tmp_path, "cache", b"glibc-ld.so.cache1.1" + b"\xff" * 40)
    assert env_libs.cache(str(tmp_path / "cache")) == {}


def test_what_is_loaded_already_is_taken_first(tmp_path: Path, libraries: Libraries) -> None:
    linker = env_libs.Linker({"LD_LIBRARY_PATH": str(tmp_path / "ld")})
    put(tmp_path / "ld", "libcudart.so.99", libraries.make("libcudart.so.99"))
    first = put(tmp_path, "first.so", libraries.make("first.so", ["libcudart.so.99"], rpath="$ORIGIN/own"))
    own = put(tmp_path / "own", "libcudart.so.99", libraries.make("libcudart.so.99"))
    second = put(tmp_path, "second.so", libraries.make("second.so", ["libcudart.so.99", "libgone.so.1"]))
    found, missing = linker.load(first, ["libcudart"])
    assert [Path(f.path).samefile(own) for f in found] == [True]
    assert missing == []
    assert linker.load(second, ["lib"]) == ([], [("libgone.so.1", second)])
