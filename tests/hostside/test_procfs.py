"""Processes and cgroups: real ones, and a tree of our own where the real one is not ours to shape."""

from __future__ import annotations

import os
from pathlib import Path

from ddtree_console.hostside import procfs
from ddtree_console.hostside.roots import Roots
from tests.hostside.support import FakeHost, waiting_child

HERE = Roots()


def test_a_cgroup_counts_the_processes_of_its_children_too(host: FakeHost) -> None:
    host.cgroup("/system.slice/a.service", 20, 10)
    host.cgroup("/system.slice/a.service/inner", 30)
    assert procfs.cgroup_pids(host.roots, "/system.slice/a.service") == [10, 20, 30]
    assert procfs.cpu_usec(host.roots, "/system.slice/a.service") == 1234567
    assert procfs.cgroup_pids(host.roots, "/system.slice/gone.service") == []
    assert procfs.cpu_usec(host.roots, "/system.slice/gone.service") is None


def test_no_control_group_is_never_the_whole_tree(host: FakeHost) -> None:
    host.cgroup("/", 1, 2, 3)
    assert procfs.cgroup_pids(host.roots, "") == []
    assert procfs.cgroup_pids(host.roots, "/") == []


def test_hybrid_and_old_hierarchies(host: FakeHost) -> None:
    host.cgroup("/unified/system.slice/a.service", 7)
    old = host.folder / "cgroup/systemd/system.slice/b.service"
    old.mkdir(parents=True)
    (old / "cgroup.procs").write_text("8\n")
    usage = host.folder / "cgroup/cpu,cpuacct/system.slice/b.service"
    usage.mkdir(parents=True)
    (usage / "cpuacct.usage").write_text("5000000\n")
    assert procfs.cgroup_pids(host.roots, "/system.slice/a.service") == [7]
    assert procfs.cgroup_pids(host.roots, "/system.slice/b.service") == [8]
    assert procfs.cpu_usec(host.roots, "/system.slice/b.service") == 5000


def test_bytes_read_move_when_a_process_reads(tmp_path: Path) -> None:
    before = procfs.read_bytes(HERE, [os.getpid()])
    (tmp_path / "big").write_bytes(b"x" * 3_000_000)
    assert len((tmp_path / "big").read_bytes()) == 3_000_000
    assert procfs.read_bytes(HERE, [os.getpid()]) - before >= 3_000_000
    assert procfs.read_bytes(HERE, [2**22 + 1]) == 0


def test_what_a_process_is() -> None:
    child = waiting_child("--api-key", "a b", "--x=")
    try:
        assert procfs.cmdline(HERE, child.pid)[-3:] == ["--api-key", "a b", "--x="]
        assert procfs.uid(HERE, child.pid) == os.getuid()
        assert procfs.comm(HERE, child.pid)
    finally:
        child.communicate()
    assert procfs.cmdline(HERE, child.pid) == []
    assert procfs.uid(HERE, child.pid) is None
    assert procfs.comm(HERE, child.pid) == ""


def test_the_unit_of_a_process(tmp_path: Path) -> None:
    roots = Roots(proc=str(tmp_path))
    for pid, text in (
        (1, "0::/system.slice/a.service/inner"),
        (2, "2:cpu:/x\n1:name=systemd:/s/b.service"),
        (3, "0::/"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(text + "\n")
    assert [procfs.unit_of(roots, pid) for pid in (1, 2, 3, 4)] == ["a.service", "b.service", "", ""]


def test_boot_id_and_boottime(tmp_path: Path) -> None:
    assert len(procfs.boot_id(HERE)) == 36
    assert procfs.boot_id(Roots(boot_id=str(tmp_path / "none"))) == ""
    assert 0 < procfs.boottime() <= procfs.boottime()
