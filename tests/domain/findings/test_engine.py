"""The engine on starts that were put together: causes, wrappers, consequences, ranks, attempts, silence."""

from __future__ import annotations

import pytest

from ddtree_console.domain.findings.attempts import Attempted
from ddtree_console.domain.findings.engine import Findings
from ddtree_console.domain.findings.rules import Rules
from ddtree_console.domain.findings.types import Finding

STAMP = "[2026-01-01 10:00:00{}] "
SCHEDULER = "Scheduler hit an exception: Traceback (most recent call last):"
FRAME = '  File "/opt/llm/sglang/srt/managers/scheduler.py", line 9, in run_scheduler_process'
SIGQUIT = STAMP.format("") + "Received sigquit from a child process. It usually means the child failed."
POOL = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB"
CAPTURE = STAMP.format(" TP0") + "Capture cuda graph begin. This can take up to several minutes."


def arguments(**flags: object) -> str:
    inner = ", ".join(f"{k}={v!r}" for k, v in flags.items())
    return STAMP.format("") + f"server_args=ServerArgs(model_path='/models/m', {inner})"


def scheduler(*lines: str, rank: str = " TP0") -> list[str]:
    return [STAMP.format(rank) + SCHEDULER, FRAME, "    scheduler = Scheduler(", *lines]


def fed(rules: Rules, *lines: str, **options: object) -> Findings:
    engine = Findings(rules, **options)  # type: ignore[arg-type]
    for line in lines:
        engine.feed(line)
    return engine


def verdict(engine: Findings) -> Finding:
    found = engine.verdict()
    assert found is not None
    return found


def test_a_healthy_log_gives_nothing(rules: Rules) -> None:
    engine = fed(rules, arguments(), STAMP.format("") + "Load weight begin.", STAMP.format("") + "Load weight end.")
    assert engine.findings() == ()
    assert engine.phase == "weights"


def test_the_cause_is_fatal_as_its_line_comes(rules: Rules) -> None:
    lines = [arguments(mem_fraction_static=0.2), *scheduler(POOL)]
    engine = fed(rules, *lines[:-1])
    assert engine.verdict() is None
    engine.feed(lines[-1])
    found = verdict(engine)
    assert (found.slug, found.fatal, found.evidence[0].line) == ("kv-budget-too-small", True, 5)
    assert found.remedies[0].edits[0].op == "raise"
    assert "0.2" in found.summary


def test_a_consequence_before_the_cause_decides_nothing(rules: Rules) -> None:
    first = scheduler("RuntimeError: [pair.cc] Connection closed by peer [10.0.0.2]:1", rank=" TP0")
    engine = fed(rules, arguments(), *first)
    before = engine.verdict()
    assert before is None or not before.fatal
    for line in scheduler("RuntimeError: CUDA error: invalid device ordinal", rank=" TP1"):
        engine.feed(line)
    engine.feed(SIGQUIT)
    assert verdict(engine).slug == "too-few-gpus"


def test_interleaved_ranks_are_kept_apart_by_prefix_and_by_pid(rules: Rules) -> None:
    engine = Findings(rules)
    heads = [STAMP.format(f" TP{n}") + SCHEDULER for n in range(2)]
    for n, head in enumerate(heads):
        engine.feed(head, pid=100 + n)
    engine.feed(FRAME, pid=101)
    engine.feed(FRAME, pid=100)
    engine.feed("RuntimeError: Connection reset by peer", pid=100)
    engine.feed("ValueError: Weight output_partition_size = 576 is not divisible by block_n = 128.", pid=101)
    assert verdict(engine).slug == "tensor-parallel-shape"
    engine = fed(
        rules, *heads, FRAME, FRAME, "RuntimeError: Connection reset by peer", "AssertionError: 7 is not divisible by 2"
    )
    assert verdict(engine).slug == "tensor-parallel-shape"


def test_the_first_exception_of_a_chain_is_the_cause(rules: Rules) -> None:
    engine = fed(
        rules, CAPTURE, STAMP.format("") + SCHEDULER, FRAME, OOM, "",
        "During handling of the above exception, another exception occurred:", "",
        "Traceback (most recent call last):", FRAME, "Exception: Capture cuda graph failed: CUDA out of memory.",
        "Possible solutions:", "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)", "", SIGQUIT,
    )  # fmt: skip
    found = verdict(engine)
    assert (found.slug, found.evidence[0].text, found.phase) == ("gpu-oom-graph-capture", OOM, "graphs")


def test_a_key_error_is_explained_by_the_next(rules: Rules) -> None:
    engine = fed(
        rules, "Traceback (most recent call last):", FRAME, "KeyError: 'foo'", "",
        "During handling of the above exception, another exception occurred:", "",
        "Traceback (most recent call last):", '  File "<frozen runpy>", line 198, in _run_module_as_main',
        "ValueError: The checkpoint has model type `foo` but Transformers does not recognize this architecture.",
    )  # fmt: skip
    assert verdict(engine).slug == "model-arch-unsupported"


def test_the_direction_depends_on_the_phase(rules: Rules) -> None:
    pool = verdict(fed(rules, arguments(mem_fraction_static=0.5), *scheduler(POOL)))
    capture = verdict(fed(rules, arguments(mem_fraction_static=0.9), CAPTURE, *scheduler(OOM)))
    assert [e.op for e in pool.remedies[0].edits] == ["raise"]
    edit = capture.remedies[0].edits[0]
    assert (edit.name, edit.op, edit.value) == ("mem-fraction-static", "lower", 0.87)


def test_both_directions_tried_means_another_lever(rules: Rules) -> None:
    tried = [Attempted({"mem-fraction-static": 0.84}, "kv-budget-too-small", "weights")]
    engine = fed(rules, arguments(mem_fraction_static=0.85), *scheduler(OOM), attempts=tried)
    found = verdict(engine)
    assert found.slug == "kv-budget-too-small"
    assert "0.84" in found.summary and "0.85" in found.summary
    assert found.remedies
    assert not [e for r in found.remedies for e in r.edits if e.name == "mem-fraction-static"]


def test_room_between_two_refused_fractions_is_used(rules: Rules) -> None:
    tried = [Attempted({"mem-fraction-static": 0.7}, "kv-budget-too-small")]
    found = verdict(fed(rules, arguments(mem_fraction_static=0.9), CAPTURE, *scheduler(OOM), attempts=tried))
    assert found.slug == "gpu-oom-graph-capture"
    assert found.remedies[0].edits[0].value == 0.8


def test_a_restart_begins_a_new_start_and_is_remembered(rules: Rules) -> None:
    gone = "llm.service: Main process exited, code=killed, status=9/KILL"
    again = "llm.service: Scheduled restart job, restart counter is at 1."
    engine = fed(rules, arguments(mem_fraction_static=0.5), *scheduler(POOL), SIGQUIT)
    for line in (gone, again):
        engine.feed(line, source="systemd")
    assert [(a.slug, a.flags["mem-fraction-static"]) for a in engine.attempts] == [("kv-budget-too-small", 0.5)]
    assert verdict(engine).slug == "kv-budget-too-small"
    for line in (arguments(mem_fraction_static=0.9), CAPTURE, *scheduler(OOM), SIGQUIT):
        engine.feed(line)
    assert verdict(engine).slug == "gpu-oom-graph-capture"
    assert verdict(engine).evidence[0].line > 8


def test_a_restart_that_serves_leaves_nothing(rules: Rules) -> None:
    engine = fed(rules, arguments(), *scheduler(POOL), SIGQUIT)
    engine.feed("llm.service: Scheduled restart job, restart counter is at 1.", source="systemd")
    engine.feed(STAMP.format("") + "The server is fired up and ready to roll!")
    assert engine.findings() == ()


def test_the_start_limit_points_back_to_the_first_cause(rules: Rules) -> None:
    engine = fed(rules, arguments(), *scheduler(POOL), SIGQUIT)
    for line in (
        "llm.service: Scheduled restart job, restart counter is at 5.",
        "llm.service: Start request repeated too quickly.",
        "llm.service: Failed with result 'start-limit-hit'.",
    ):
        engine.feed(line, source="systemd")
    assert verdict(engine).slug == "kv-budget-too-small"


def test_the_flag_edited_last_is_blamed(rules: Rules) -> None:
    line = "launch_server.py: error: unrecognized arguments: --enable-foo"
    assert verdict(fed(rules, line, edited=("enable-foo",))).blames == "enable-foo"
    assert verdict(fed(rules, line, edited=("port",))).blames == ""
    found = verdict(fed(rules, arguments(mem_fraction_static=0.2), *scheduler(POOL), edited=("mem-fraction-static",)))
    assert found.blames == "mem-fraction-static"


def test_an_edit_is_not_blamed_for_what_failed_before_it(rules: Rules) -> None:
    tried = [Attempted({"mem-fraction-static": 0.1}, "kv-budget-too-small")]
    engine = fed(
        rules, arguments(mem_fraction_static=0.2), *scheduler(POOL), edited=("mem-fraction-static",), attempts=tried
    )
    assert verdict(engine).blames == ""


def test_nine_kill_after_sigquit_is_not_the_oom_killer(rules: Rules) -> None:
    engine = fed(rules, arguments(), *scheduler("ValueError: something new"), SIGQUIT)
    engine.unit("failed", "failed", "signal", "killed", "9", 0, 12.0)
    found = verdict(engine)
    assert (found.slug, found.fatal) == ("unknown", True)
    assert found.evidence[0].text == "ValueError: something new"
    engine = fed(rules, arguments(), "x")
    engine.unit("failed", "failed", "oom-kill", "killed", "9", 0, 12.0)
    assert verdict(engine).slug == "host-memory-short"


def test_what_dies_after_a_stop_is_no_failure(rules: Rules) -> None:
    engine = fed(
        rules, arguments(), STAMP.format("") + "SIGTERM received. Draining requests and shutting down...",
        *scheduler("EOFError"), SIGQUIT,
    )  # fmt: skip
    engine.end()
    assert engine.verdict() is None


def test_what_a_start_went_on_after_was_caught(rules: Rules) -> None:
    engine = fed(
        rules, arguments(), "Traceback (most recent call last):",
        '  File "/opt/v/site-packages/x.py", line 3, in <module>', "ModuleNotFoundError: No module named 'deep_ep'",
    )  # fmt: skip
    before = engine.verdict()
    assert before is None or not before.fatal
    engine.feed(STAMP.format("") + "Load weight begin. avail mem=1 GB")
    assert engine.findings() == ()
    for line in scheduler("ValueError: something new"):
        engine.feed(line)
    engine.feed(SIGQUIT)
    assert verdict(engine).evidence[0].text == "ValueError: something new"


def test_a_request_that_failed_is_not_the_server(rules: Rules) -> None:
    engine = fed(
        rules, arguments(), STAMP.format("") + "The server is fired up and ready to roll!",
        "ERROR:    Exception in ASGI application", "Traceback (most recent call last):",
        '  File "/x/http_server.py", line 1, in <module>', "torch.OutOfMemoryError: CUDA out of memory.",
        STAMP.format("") + "Decode batch, #running-req: 1",
    )  # fmt: skip
    assert engine.findings() == ()


@pytest.mark.parametrize(
    "line",
    [
        "x.py: error: unrecognized arguments: --foo",
        "Exception: Capture cuda graph failed: CUDA out of memory.",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    ],
)
def test_text_of_a_request_ends_no_server_that_serves(rules: Rules, line: str) -> None:
    engine = fed(rules, arguments(), STAMP.format("") + "The server is fired up and ready to roll!", line)
    found = engine.verdict()
    assert found is None or not found.fatal
    engine.feed(STAMP.format("") + "Decode batch, #running-req: 1")
    assert engine.findings() == ()


def test_silence_is_only_a_stall_past_its_limit(rules: Rules) -> None:
    engine = Findings(rules)
    engine.feed(STAMP.format(" TP0") + "Init torch distributed begin.", t=10.0)
    engine.silence(60.0)
    assert engine.verdict() is None
    engine.silence(400.0)
    found = verdict(engine)
    assert (found.slug, found.fatal) == ("stalled-rendezvous", True)
    engine.feed(STAMP.format(" TP0") + "Init torch distributed ends.", t=401.0)
    assert engine.verdict() is None


def test_a_hint_of_a_lock_names_the_stall(rules: Rules) -> None:
    engine = Findings(rules)
    engine.feed(CAPTURE, t=0.0)
    engine.feed("waiting for baton release at /root/.cache/x/lock_module", t=1.0)
    assert engine.verdict() is None
    engine.silence(120.0)
    assert verdict(engine).slug == "stalled-lock"


def test_nothing_known_shows_the_most_suspicious_lines(rules: Rules) -> None:
    engine = fed(rules, arguments(), "something failed strangely", "and then nothing")
    assert engine.verdict() is None
    engine.end()
    found = verdict(engine)
    assert (found.slug, found.fatal) == ("unknown", True)
    assert [e.text for e in found.evidence] == ["something failed strangely"]
    assert found.confidence < 0.3 and not found.remedies


def test_memory_stays_bounded(rules: Rules) -> None:
    engine = Findings(rules)
    for n in range(3000):
        engine.feed(f"ValueError: strange {n}", pid=n)
        engine.feed(f"RuntimeError: CUDA error: invalid device ordinal {n}", pid=n)
    start = engine._start
    assert len(start.seen) <= 96 and len(start.counts) <= 100
    assert len(engine._traces._streams) <= 64


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeErrorRuntimeError: : CUDA error: invalid device ordinalCUDA error: invalid device ordinal",
        "RuntimeError: RuntimeError: CUDA error: invalid device ordinalxCUDA error",
        "ValueError: [2026-01-01 10:00:00 TP1] CUDA error: invalid device ordinal[2026-01-01 10:00:00 TP2] x",
    ],
)
def test_two_ranks_within_one_line(rules: Rules, line: str) -> None:
    engine = fed(rules, STAMP.format(" TP0") + SCHEDULER, FRAME, line, SIGQUIT)
    assert verdict(engine).slug == "too-few-gpus"


@pytest.mark.parametrize(("xid", "slug"), [(79, "driver-not-ready"), (31, "native-crash")])
def test_a_lost_gpu_is_the_cause_and_a_programs_own_fault_is_not(rules: Rules, xid: int, slug: str) -> None:
    engine = fed(rules, arguments())
    engine.feed(f"NVRM: Xid (PCI:0000:41:00): {xid}, pid=4188, name=python3, Ch 00000008", source="kernel")
    for line in (*scheduler("torch.AcceleratorError: CUDA error: an illegal memory access was encountered"), SIGQUIT):
        engine.feed(line)
    assert verdict(engine).slug == slug
