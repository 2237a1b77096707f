"""Moving, slow or stuck, with looks of a clock of their own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.domain.stalls import Facts, Lock, Look, Proc, Stalls, Start, duration, finding

MAIN = Proc(10, "python3")
RANKS = (MAIN, Proc(20, "sglang::scheduler_TP0", "S", "0"), Proc(21, "sglang::scheduler_TP1", "S", "1"))


def facts(t: float, procs: tuple[Proc, ...] = RANKS, **more: Any) -> Facts:
    return Facts(t, procs, **more)


def test_loading_tells_its_rate_and_the_time_that_is_left() -> None:
    stalls = Stalls(2)
    start: dict[str, Any] = {"phase": "weights", "size": 100_000_000_000}
    stalls.look(facts(0.0, read=0), Start(elapsed=0, **start))
    look = Look()
    for second in range(2, 62, 2):
        look = stalls.look(facts(float(second), read=412_000_000 * second), Start(elapsed=second, **start))
    assert look.words == "loading, 412 MB/s, about 3 min left"
    assert (look.slug, look.over) == ("", False)


def test_a_bar_tells_the_time_left_better_than_bytes() -> None:
    look = Stalls().look(facts(10.0), Start("weights", elapsed=30, done=3, total=12, size=1 << 40))
    assert look.words == "loading, about 2 min left"


def test_a_storage_that_delivers_nothing_is_stuck_and_one_that_is_slow_is_slow() -> None:
    stalls = Stalls(2)
    waiting = (MAIN, Proc(20, "sglang::scheduler_TP0", "D", "0"))
    look = Look()
    for second in range(0, 60, 2):
        look = stalls.look(facts(float(second), waiting, read=5_000_000), Start("weights", second, still=second))
        assert second >= 30 or not look.slug
    assert look.slug == "stalled-io"
    assert "1 process waits in it" in look.words
    slow = Stalls(2)
    slow.look(facts(0.0, read=0), Start("weights", 100, good=50))
    look = slow.look(facts(4.0, read=48_000_000), Start("weights", 104, good=50))
    assert look.slug == "slow-progress"
    assert look.words.startswith("loading, 12 MB/s, slow: the last good start took 50 s")


def test_a_dead_rank_is_told_after_a_moment_and_ends_the_wait_later() -> None:
    stalls = Stalls(2)
    start = Start("graphs", elapsed=5)
    assert stalls.look(facts(0.0), start).slug == ""
    zombie = (MAIN, RANKS[1], Proc(21, "sglang::schedul", "Z", "?"))
    assert stalls.look(facts(1.0, zombie), start).slug == ""
    look = stalls.look(facts(3.5, zombie), start)
    assert look.words == "stuck: rank 1 died, rank 0 waits"
    assert (look.slug, look.over) == ("stalled-dead-child", False)
    gone = (MAIN, RANKS[1])
    assert stalls.look(facts(32.0, gone), start).over
    assert stalls.look(facts(33.0), start).slug == "", "a rank that is there again is not dead"


def test_a_whole_tree_that_ends_is_an_exit_and_no_dead_rank() -> None:
    stalls = Stalls(2)
    stalls.look(facts(0.0), Start())
    for t in (1.0, 40.0):
        assert stalls.look(facts(t, ()), Start()).slug == ""


@pytest.mark.parametrize(
    ("lock", "words", "slug"),
    [
        (Lock("/c/lock", 4127, False), "stuck: waits for a lock left by pid 4127", "stalled-lock"),
        (Lock("/c/lock", 0, False), "stuck: waits for a lock that nobody holds", "stalled-lock"),
        (Lock("/c/lock", 4127, True), "waits for a lock that pid 4127 holds", ""),
    ],
)
def test_a_lock_in_a_quiet_start_is_named(lock: Lock, words: str, slug: str) -> None:
    stalls = Stalls()
    assert not stalls.look(facts(3.0, locks=(lock,)), Start("imports", 20, still=3)).words.startswith("stuck")
    look = stalls.look(facts(9.0, locks=(lock,)), Start("imports", 26, still=9))
    assert (look.words, look.slug, look.over) == (words, slug, False)
    last = stalls.look(facts(70.0, locks=(lock,)), Start("imports", 90, still=70))
    assert last.slug == "stalled-lock"
    assert last.over is not lock.alive
    found = finding(last, Start("imports", 90, still=70), ["a", "b"], 7, True)
    assert found.fatal
    assert [e.line for e in found.evidence] == [6, 7]
    assert (found.remedies[0].command == "rm -f /c/lock") is not lock.alive


def test_compilers_at_work_are_no_stall_and_no_lock_is_blamed() -> None:
    busy = (*RANKS, Proc(30, "nvcc", compiler=True), Proc(31, "cicc", "R", compiler=True))
    locks = (Lock("/c/lock", 0, False),)
    look = Stalls(2).look(facts(900.0, busy, locks=locks), Start("graphs", 900, good=20, still=300))
    assert look.words == "compiling kernels (nvcc, cicc), slow: the last good start took 20 s"
    assert (look.slug, look.over) == ("slow-progress", False)


def test_ranks_that_do_not_meet_are_counted() -> None:
    assert Stalls(2).look(facts(5.0), Start("distributed", 5)).words == "2 of 2 ranks meet"
    look = Stalls(2).look(facts(70.0), Start("distributed", 70, still=70))
    assert look.words == "stuck: 2 of 2 ranks wait for one another for 70 s"
    assert look.slug == "stalled-rendezvous"
    look = Stalls(4).look(facts(70.0), Start("distributed", 70, still=70))
    assert look.words == "stuck: only 2 of 4 ranks came"
    assert Stalls(2).look(facts(70.0), Start("distributed", 70, good=40)).slug == "", "it took long the last time too"


def test_silence_is_told_with_the_last_good_start_beside_it() -> None:
    look = Stalls().look(facts(50.0), Start("graphs", 50, good=48, still=40))
    assert look == Look("quiet for 40 s, the last good start took 48 s")
    busy = Stalls().look(facts(50.0), Start("graphs", 50, still=40, util=97))
    assert busy.words == "quiet for 40 s, GPU 97 % busy"
    assert Stalls().look(facts(5.0), Start("graphs", 20, good=48, done=10, total=20)).words == (
        "capturing graphs, 10 of 20, about 20 s left"
    )


@pytest.mark.parametrize(("s", "words"), [(0.2, "1 s"), (89, "89 s"), (90, "2 min"), (3660, "1 h 1 min")])
def test_durations(s: float, words: str) -> None:
    assert duration(s) == words


RANK = st.sampled_from(["", "0", "1", "?"])
PROCS = st.builds(Proc, st.integers(1, 5), st.just("x"), st.sampled_from("SRDZXT"), RANK, st.booleans())
STARTS = st.builds(
    Start,
    st.sampled_from(["", "imports", "distributed", "weights", "draft weights", "graphs", "warm-up"]),
    st.floats(0, 1e5),
    st.none() | st.floats(0, 1e4),
    st.none() | st.integers(0, 50),
    st.none() | st.integers(0, 50),
    st.floats(0, 1e5),
    st.integers(0, 1 << 42),
)


@given(st.lists(st.tuples(st.lists(PROCS, max_size=5), STARTS, st.none() | st.integers(0, 1 << 42)), max_size=12))
def test_any_looks_give_short_words_and_only_certain_stalls_end_a_wait(rows: list[Any]) -> None:
    stalls = Stalls(2)
    for t, (procs, start, read) in enumerate(rows):
        look = stalls.look(Facts(t * 20.0, tuple(procs), read), start)
        assert len(look.words) < 200
        assert "\n" not in look.words
        assert not look.over or look.slug in ("stalled-dead-child", "stalled-lock")
        finding(look, start, (), 0, look.over)
