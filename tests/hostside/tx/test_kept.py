"""Locks, events, releases, requests and what is judged of GPUs: small parts on real files."""

from __future__ import annotations

import json
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.domain import drift
from ddtree_console.domain.plan import Candidate, Plan, plan_from_json
from ddtree_console.domain.snapshot import Gpu, GpuProcess, GpuReport
from ddtree_console.hostside import (
    changes,
    durable,
    eventlog,
    kept,
    locks,
    mark,
    preflight,
    releases,
    secret_env,
    submit,
)  # fmt: skip
from ddtree_console.hostside.hostclock import Clock
from ddtree_console.hostside.roots import Roots

UNIT = "q.service"


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """Roots below a temporary folder."""
    here = {name: str(tmp_path / name) for name in ("etc", "run", "var", "opt", "cgroup")}
    return Roots(**here, nvml=False)


class Quick(Clock):
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def boottime(self) -> float:
        """The time."""
        return self.now

    def wall(self) -> float:
        """The same."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """No wait."""
        self.now += seconds


# -- locks


def hold(roots: Roots, ready: multiprocessing.synchronize.Event, over: multiprocessing.synchronize.Event) -> None:
    """A process that holds the slot's locks."""
    locks.acquire(roots, UNIT, (1, 0), {"who": "ana", "from": "desk", "why": "deploy"}, Clock())
    ready.set()
    over.wait(20)


def test_a_lock_names_its_holder_and_the_kernel_frees_it(roots: Roots) -> None:
    many = multiprocessing.get_context("fork")
    ready, over = many.Event(), many.Event()
    other = many.Process(target=hold, args=(roots, ready, over))
    other.start()
    try:
        assert ready.wait(10)
        with pytest.raises(locks.Busy, match="ana from desk: deploy"):
            locks.acquire(roots, "other.service", (0,), {}, Quick())
        found = locks.holders(roots)
        assert found["other.service"] is None  # taken on the way, given back
        assert found["gpu-0"] is not None
        assert found["gpu-0"]["pid"] == other.pid
    finally:
        other.kill()
        other.join()
    assert locks.holders(roots)[UNIT] is None
    locks.acquire(roots, UNIT, (0, 1), {}, Quick()).release()


def test_locks_are_taken_in_one_order() -> None:
    assert locks.lock_names(UNIT, (7, 0, 7)) == [UNIT, "gpu-0", "gpu-7"]


# -- events


def test_events_survive_torn_lines_and_go_on_counting(roots: Roots) -> None:
    log = eventlog.EventLog(roots, UNIT, "t1", Quick())
    log.emit("begin", what="deploy")
    log.emit("note", text="[b]\x1b")
    path = eventlog.disk_path(roots, UNIT, "t1")
    with path.open("a") as file:
        file.write('{"v":1,"tx":"t1","n":2,"ki')
    log = eventlog.EventLog(roots, UNIT, "t1", Quick())
    log.emit("note", text="after")
    assert [json.loads(line)["n"] for line in eventlog.read_events(roots, UNIT, "t1")] == [0, 1, 2]
    follower = eventlog.Follower(roots, UNIT, "t1")
    assert len(follower.poll()) == 3
    assert follower.poll() == []


def test_a_full_disk_spills_and_is_made_up_for(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    log = eventlog.EventLog(roots, UNIT, "t1", Quick())
    log.emit("begin")
    append, full = durable.append_line, [True]

    def refuse(path: Path, line: str) -> None:
        if full and str(path).startswith(roots.var):
            raise OSError(28, "No space left on device")
        append(path, line)

    monkeypatch.setattr(durable, "append_line", refuse)
    log.emit("note", text="lost?")
    follower = eventlog.Follower(roots, UNIT, "t1")
    assert len(follower.poll()) == 2
    full.clear()
    log.emit("note", text="room again")
    assert len(follower.poll()) == 1
    on_disk = eventlog.disk_path(roots, UNIT, "t1").read_text().splitlines()
    assert [json.loads(line)["n"] for line in on_disk] == [0, 1, 2]


# -- releases


def keep(roots: Roots, text: str, name: str = "p", reuse: bool = False) -> str:
    """Keeps one."""
    return kept.keep(roots, UNIT, Candidate(text, name), {"wall": 1.0}, reuse).release


def test_releases_are_numbered_kept_whole_and_found_again(roots: Roots) -> None:
    assert [keep(roots, "a"), keep(roots, "b")] == ["r1", "r2"]
    assert keep(roots, "a", reuse=True) == "r1"
    assert keep(roots, "a", name="other", reuse=True) == "r3"
    (kept.folder(roots, UNIT, "r2")).joinpath("profile.json").write_text("{torn")
    found = kept.read(roots, UNIT, "r2")
    assert found is not None
    assert found.unit_text == "b"
    assert kept.names(roots, UNIT) == ["r1", "r2", "r3"]


def test_known_good_is_the_committed_one_unless_it_failed_after_its_commit() -> None:
    state = releases.State()
    assert state.known_good == ""
    for name in ("r1", "r2", "r3"):
        state = state.with_commit(name, {"weights": 1.0}, 1.0)
    assert state.known_good == "r3"
    state = state.with_failed("r3").with_failed("r2")
    assert state.known_good == "r1"
    assert state.with_failed("r1").known_good == ""
    assert state.with_commit("r3", {}, 2.0).known_good == "r3"


def test_a_rename_that_state_json_does_not_know_counts(roots: Roots) -> None:
    keep(roots, "a")
    keep(roots, "b")
    releases.save(roots, UNIT, releases.State().with_commit("r1", {}, 1.0))
    durable.write_atomic(roots.committed(UNIT), b"a")
    state = replace(releases.load(roots, UNIT), committing="r2")
    releases.save(roots, UNIT, state, {"secs": {"weights": 2.0}, "wall": 5.0})
    assert releases.load(roots, UNIT).committed == "r1"
    durable.write_atomic(roots.committed(UNIT), b"b")
    found = releases.load(roots, UNIT)
    assert (found.committed, found.known_good, found.held["r2"]["secs"]) == ("r2", "r2", {"weights": 2.0})
    assert releases.edited(roots, UNIT) == ()
    durable.write_atomic(roots.committed(UNIT), b"by hand")
    assert releases.edited(roots, UNIT) == (str(roots.committed(UNIT)),)


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_json_in_our_files_is_read_as_something(value: object) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        roots = Roots(etc=f"{folder}/e", run=f"{folder}/r", var=f"{folder}/v")
        keys = ("committed", "held", "commits", "failed_after", "drop_ins", "committing")
        durable.write_json(releases.path(roots, UNIT), dict.fromkeys(keys, value))
        durable.write_json(roots.live(UNIT) / "mark.json", {"tx": value, "tried": value, "outcome": value})
        releases.state(roots, UNIT)
        assert mark.read(roots, UNIT).tx == (value if isinstance(value, str) else "")


def test_a_secret_that_the_host_lacks_is_named_and_no_value_is(roots: Roots) -> None:
    roots.secrets().parent.mkdir(parents=True)
    roots.secrets().write_text("# c\nhub=canary-1\n\nbroken\n")
    assert secret_env.content(roots, {"HF_TOKEN": "hub"}) == b"HF_TOKEN=canary-1\n"
    with pytest.raises(secret_env.Missing) as missing:
        secret_env.content(roots, {"A": "hub", "B": "nothere"})
    assert "nothere" in str(missing.value)
    assert "canary" not in str(missing.value)


# -- judgements


def test_changes_in_words_without_secrets() -> None:
    old = {"flags": {"mem-fraction-static": 0.88, "tp": 1}, "env": {"HF_TOKEN": "canary-1"}, "model": "a"}
    new = {"flags": {"mem-fraction-static": 0.95}, "env": {"HF_TOKEN": {"secret": "hub"}}, "model": "a"}
    told = changes.lines(old, new)
    assert told[:2] == ["flag mem-fraction-static 0.88 -> 0.95", "flag tp 1 -> unset"]
    assert not any("canary" in line for line in told)


def test_only_flags_that_were_set_are_compared() -> None:
    asked = {"a": 0.5, "b": True, "c": ["1", 2], "d": "x", "e": False, "gone": 1}
    real = {"a": "0.50", "b": True, "c": [1, 2], "d": "y", "e": None, "other": 9}
    assert [(found.flag, found.asked, found.effective) for found in drift.compare(asked, real, ())] == [("d", "x", "y")]


def test_a_secret_flag_is_neither_compared_nor_told() -> None:
    assert drift.compare({"api-key": "canary-1", "tp": 1}, {"api-key": "***", "tp": 1}, ()) == []


def gpu_plan(*gpus: int) -> Plan:
    """A plan that wants those GPUs."""
    return Plan("deploy", UNIT, "q", 30000, gpus=gpus, shared_gpu_units=("friend.service",))


@pytest.mark.parametrize(
    ("process", "used", "ours_runs", "said"),
    [
        (None, 0, False, ""),
        (GpuProcess(os.getpid(), unit=UNIT), 9 << 30, True, ""),
        (GpuProcess(os.getpid(), unit="friend.service"), 9 << 30, False, ""),
        (GpuProcess(os.getpid(), user="eve", name="train"), 9 << 30, False, "train, eve"),
        (GpuProcess(2**22 + 5), 9 << 30, True, ""),
        (GpuProcess(2**22 + 5), 9 << 30, False, "9.0 GiB in use"),
        (None, 9 << 30, False, "9.0 GiB in use"),
        (None, 1 << 29, False, ""),
    ],
)
def test_gpus_must_be_free_or_ours(process: GpuProcess | None, used: int, ours_runs: bool, said: str) -> None:
    gpu = Gpu(0, used=used, total=48 << 30, processes=(process,) if process else ())
    found = preflight.judge_gpus(Roots(), gpu_plan(0), GpuReport("nvml", gpus=(gpu,)), ours_runs)
    assert (found.cause if found else "").count(said) >= 1
    assert (found is None) == (said == "")


def test_a_gpu_that_is_not_there_or_lost_is_refused() -> None:
    report = GpuReport("nvml", gpus=(Gpu(0, fault="GPU is lost"),))
    lost, missing = (preflight.judge_gpus(Roots(), gpu_plan(n), report, False) for n in (0, 3))
    assert lost is not None
    assert "GPU is lost" in lost.cause
    assert missing is not None
    assert "no GPU 3" in missing.cause
    assert preflight.judge_gpus(Roots(), gpu_plan(0), GpuReport(fault="no NVML"), False) is None


@pytest.mark.parametrize(
    "bad",
    [
        {"what": "destroy"},
        {"unit": "../../etc/passwd"},
        {"unit": "x.service; reboot"},
        {"unit": "-p.service"},
        {"port": 0},
        {"to": "r1; x"},
        {"to": "way-back"},
        {"new": None},
        {"on_failure": "shrug"},
        {"hold": -1},
        {"force": True},
        {"way_back_service": "a b"},
    ],
)
def test_a_bad_plan_is_refused_by_name(bad: dict[str, object]) -> None:
    good = {**Plan("deploy", UNIT, "q", 30000, new=Candidate("[Service]\nExecStart=/x\n")).to_json()}
    assert submit.problem_of(plan_from_json(good)) == ""
    assert submit.problem_of(plan_from_json({**good, **bad})) != ""
