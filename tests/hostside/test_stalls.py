"""Facts of real processes: ranks by their titles, dead children, bytes read, locks and who holds them."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddtree_console.domain.stalls import Facts, Lock, Stalls, Start
from ddtree_console.hostside import jit_locks, stalls
from tests.hostside.support import FakeHost, waiting_child

GROUP = "/system.slice/q.service"


@pytest.fixture
def ranks() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two schedulers by their titles, children of this process, which never asks how they ended."""
    found = [waiting_child(f"sglang::scheduler_TP{n}") for n in (0, 1)]
    yield found
    for one in found:
        one.kill()
        one.wait()


def facts(looks: stalls.Looks, now: float, main: int, quiet: bool = False) -> Facts:
    """One look, waited for."""
    looks.ask(now, GROUP, main, quiet)
    assert select.select([looks.fileno()], [], [], 10.0)[0]
    found = looks.take()
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("title", "rank"),
    [
        ("sglang::scheduler", "0"),
        ("sglang::scheduler_TP1", "1"),
        ("sglang::scheduler_DP2_TP3", "2.3"),
        ("sglang::detokenizer", ""),
        ("python3", ""),
        ("my_scheduler", ""),
        ("scheduler_", "0"),
    ],
)
def test_a_rank_is_read_from_its_title(title: str, rank: str) -> None:
    assert stalls.rank_of(title) == rank


def test_a_rank_that_died_and_is_not_asked_for_is_seen_dead(
    host: FakeHost, ranks: list[subprocess.Popen[bytes]]
) -> None:
    host.cgroup(GROUP, os.getpid(), *(one.pid for one in ranks))
    looks, fold = stalls.Looks(host.roots), Stalls(2)
    first = facts(looks, 10.0, os.getpid())
    assert [p.rank for p in first.procs if p.rank] == ["0", "1"]
    assert fold.look(first, Start("graphs")).slug == ""
    ranks[1].kill()
    os.waitid(os.P_PID, ranks[1].pid, os.WEXITED | os.WNOWAIT)  # it is dead and stays a zombie
    fold.look(facts(looks, 20.0, os.getpid()), Start("graphs"))
    look = fold.look(facts(looks, 23.0, os.getpid()), Start("graphs"))
    assert look.words == "stuck: rank 1 died, rank 0 waits"
    looks.close()


def test_bytes_are_counted_from_the_first_look_on(host: FakeHost, tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(os.urandom(3 << 20))
    reader = "import sys\nfor line in sys.stdin: print(len(open(line.strip(), 'rb').read()), flush=True)"
    with subprocess.Popen([sys.executable, "-c", reader], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        host.cgroup(GROUP, child.pid)
        assert child.stdin is not None
        assert child.stdout is not None

        def read_it() -> None:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(f"{file}\n".encode())
            child.stdin.flush()
            assert int(child.stdout.readline()) == 3 << 20

        read_it()
        looks = stalls.Looks(host.roots)
        assert facts(looks, 10.0, child.pid).read == 0
        read_it()
        after = facts(looks, 20.0, child.pid).read
        assert after is not None
        assert 3 << 20 <= after < 4 << 20
        looks.close()
        child.kill()


def test_the_size_of_a_model_is_that_of_its_weight_files(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"x" * 70)
    (tmp_path / "b.safetensors").write_bytes(b"x" * 30)
    (tmp_path / "config.json").write_bytes(b"{}")
    assert stalls.weight_bytes(str(tmp_path)) == 100
    assert stalls.weight_bytes("org/name") == 0


class Home:
    """A process with a HOME of its own whose caches may hold locks."""

    def __init__(self, folder: Path) -> None:
        env = {"HOME": str(folder), "PATH": os.environ["PATH"]}
        code = "print(1, flush=True); input()"
        self.child = subprocess.Popen(
            [sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.child.stdout is not None
        self.child.stdout.readline()
        self.build = folder / ".cache/torch_extensions/py312_cu130/ops"
        self.build.mkdir(parents=True)

    def close(self) -> None:
        self.child.kill()
        self.child.wait()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home(tmp_path / "home")
    yield found
    found.close()


def test_a_lock_that_a_killed_build_left_is_nobodys(host: FakeHost, home: Home) -> None:
    lock = home.build / "lock"
    code = f"import os; os.open({str(lock)!r}, os.O_CREAT | os.O_EXCL | os.O_RDWR); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as builder:
        assert builder.stdout is not None
        builder.stdout.readline()
        held = jit_locks.find(host.roots, home.child.pid, [home.child.pid])
        assert held == [Lock(str(lock), builder.pid, True)]
        builder.kill()
    assert jit_locks.find(host.roots, home.child.pid, [home.child.pid]) == [Lock(str(lock), 0, False)]
    lock.write_text(f"{builder.pid}\n")
    assert jit_locks.find(host.roots, home.child.pid, []) == [Lock(str(lock), builder.pid, False)]
    looks = stalls.Looks(host.roots)
    host.cgroup(GROUP, home.child.pid)
    seen = facts(looks, 10.0, home.child.pid, quiet=True)
    look = Stalls().look(seen, Start("imports", 20, still=9))
    assert look.words == f"stuck: waits for a lock left by pid {builder.pid}"
    looks.close()


def test_a_flock_ends_with_its_holder_and_its_file_is_no_lock(host: FakeHost, home: Home) -> None:
    path = home.build.parents[2] / "flashinfer/cached_ops/x.lock"
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        assert jit_locks.find(host.roots, home.child.pid, []) == []
        fcntl.flock(file, fcntl.LOCK_EX)
        assert jit_locks.find(host.roots, home.child.pid, []) == [Lock(str(path), os.getpid(), True)]


def test_a_compiler_is_known_by_its_name(host: FakeHost) -> None:
    name = "import ctypes; ctypes.CDLL(None).prctl(15, b'nvcc', 0, 0, 0); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = stalls.processes(host.roots, [child.pid, 1 << 22])
        assert [(p.name, p.compiler) for p in found] == [("nvcc", True)]
        child.kill()
