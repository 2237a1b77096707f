"""A slow start is not a dead one, and a dead one is found."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.domain.progress import PHASE_LIMITS, ProgressClock, limit_of


def test_nothing_moves_until_the_phase_limit() -> None:
    clock = ProgressClock(10_000, started=100.0)
    still = {"lines": 5, "cpu_usec": 0, "read_bytes": 7, "gpu_memory": 1 << 30}
    clock.sample(100.0, phase="weights", **still)
    p = clock.sample(399.0, phase="weights", **still)
    assert (p.moved, p.stall_at, p.stalled) == ((), 400.0, False)
    assert clock.sample(400.0, phase="weights", **still).stalled


def test_each_of_the_four_counts_as_movement() -> None:
    clock = ProgressClock(10_000, started=0.0)
    clock.sample(0.0, lines=0, cpu_usec=0, read_bytes=0, gpu_memory=0, phase="graphs")
    assert clock.sample(1.0, lines=1, cpu_usec=0, read_bytes=0, gpu_memory=0, phase="graphs").moved == ("log",)
    assert clock.sample(2.0, lines=1, cpu_usec=60_000, read_bytes=0, gpu_memory=0, phase="graphs").moved == ("cpu",)
    assert clock.sample(3.0, lines=1, cpu_usec=60_000, read_bytes=1, gpu_memory=0, phase="graphs").moved == ("io",)
    p = clock.sample(4.0, lines=1, cpu_usec=60_000, read_bytes=1, gpu_memory=1 << 21, phase="graphs")
    assert (p.moved, p.stall_at) == (("gpu",), None)


def test_a_little_cpu_is_not_movement_and_spinning_in_distributed_init_is_not() -> None:
    clock = ProgressClock(10_000, started=0.0)
    clock.sample(0.0, cpu_usec=0, phase="imports")
    assert clock.sample(1.0, cpu_usec=50_000, phase="imports").moved == ()
    assert clock.sample(2.0, cpu_usec=150_000, phase="imports").moved == ("cpu",)
    clock = ProgressClock(10_000, started=0.0)
    for second in range(200):
        p = clock.sample(float(second), cpu_usec=second * 8_000_000, phase="distributed")
        assert p.moved == ()
    assert p.stalled


def test_frequent_samples_measure_cpu_like_rare_ones() -> None:
    clock = ProgressClock(10_000, started=0.0)
    moved = [clock.sample(i * 0.05, cpu_usec=i * 2_000, phase="graphs").moved for i in range(1, 200)]  # 4 % of a core
    assert not any(moved)
    clock = ProgressClock(10_000, started=0.0)
    moved = [clock.sample(i * 0.05, cpu_usec=i * 10_000, phase="graphs").moved for i in range(1, 200)]  # 20 %
    assert sum(map(bool, moved)) > 10


def test_a_process_that_ends_takes_its_bytes_along() -> None:
    clock = ProgressClock(10_000, started=0.0)
    clock.sample(0.0, read_bytes=1000, phase="weights")
    assert clock.sample(1.0, read_bytes=10, phase="weights").moved == ()
    assert clock.sample(2.0, read_bytes=11, phase="weights").moved == ("io",)


def test_a_new_phase_has_its_own_time() -> None:
    clock = ProgressClock(10_000, started=0.0)
    clock.sample(0.0, lines=1, phase="imports")
    p = clock.sample(119.0, lines=1, phase="graphs")
    assert p.stall_at == 119.0 + PHASE_LIMITS["graphs"]
    assert limit_of("draft graphs") == limit_of("graphs")
    assert limit_of("something new") == 300.0


def test_the_total_deadline_can_be_extended_while_it_runs() -> None:
    clock = ProgressClock(60.0, started=10.0)
    assert not clock.sample(69.9, phase="graphs").over
    assert clock.extend(300.0) == 370.0
    assert not clock.sample(369.0, phase="graphs").over
    assert clock.sample(370.0, phase="graphs").over


COUNT = st.none() | st.integers(0, 1 << 40)
SAMPLES = st.lists(
    st.tuples(
        st.floats(0, 400), COUNT, COUNT, COUNT, COUNT, st.sampled_from(["", *PHASE_LIMITS, "draft weights", "odd"])
    ),
    min_size=1,
)


@given(SAMPLES)
def test_a_stall_is_declared_only_after_the_limit_without_any_movement(
    samples: list[tuple[float, int, int, int, int, str]],
) -> None:
    clock = ProgressClock(1e9, started=0.0)
    now, moved_at, phase_at, before = 0.0, 0.0, 0.0, None
    for step, lines, cpu, read, gpu, phase in samples:
        now += step
        p = clock.sample(now, lines=lines, cpu_usec=cpu, read_bytes=read, gpu_memory=gpu, phase=phase)
        if phase != before:
            phase_at, before = now, phase
        if p.moved:
            moved_at = now
            assert p.stall_at is None and not p.stalled
        else:
            assert p.stall_at is not None
            quiet = now - max(moved_at, phase_at)
            assert p.stalled == (now >= p.stall_at)
            assert p.stalled == (quiet >= limit_of(phase)) or abs(quiet - limit_of(phase)) < 1e-6
        if phase == "distributed":
            assert "cpu" not in p.moved


@given(st.lists(st.floats(0, 1000), max_size=20), st.lists(st.floats(0, 500), max_size=5))
def test_over_is_exactly_the_extended_deadline(steps: list[float], extensions: list[float]) -> None:
    clock = ProgressClock(600.0, started=0.0)
    deadline, now = 600.0, 0.0
    for i, step in enumerate(steps):
        if i < len(extensions):
            deadline += extensions[i]
            assert clock.extend(extensions[i]) == deadline
        now += step
        assert clock.sample(now).over == (now >= deadline)
