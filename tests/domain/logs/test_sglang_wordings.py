"""Wordings of other releases and ranks, chains of exceptions, and lines that must not decide anything."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.demo import recordings
from ddtree_console.domain.engines.base import LogFact
from ddtree_console.domain.engines.log_common import GenericReader
from ddtree_console.domain.engines.sglang_log import SglangReader

STAMP = "[2026-11-29 14:23:36{}] "


def read(*lines: str, rank: str = "") -> tuple[SglangReader, list[LogFact]]:
    """Lines starting with `>` get SGLang's prefix."""
    reader = SglangReader()
    prefix = STAMP.format(f" {rank}" if rank else "")
    facts = [f for line in lines for f in reader.feed(prefix + line[1:] if line.startswith(">") else line)]
    return reader, facts


def runs(facts: list[LogFact]) -> list[str]:
    return [fact.name for fact in facts if fact.kind == "phase" and fact.state == "run"]


NEW = (
    ">server_args=ServerArgs(model_path='/m')",
    ">Init parallel begin.",
    ">Init parallel ends. elapsed=0.22 s",
    ">Load weight begin. avail mem=47.00 GB",
    ">Load weight end. elapsed=60.1 s, type=Qwen3ForCausalLM, avail mem=18.1 GB, mem usage=28.90 GB.",
    ">Load weight begin. avail mem=18.10 GB",
    ">Load weight end. elapsed=1.0 s, type=DFlashDraftModel, avail mem=14.6 GB, mem usage=3.50 GB.",
    ">Mamba Cache is allocated. max_mamba_cache_size: 12, ssm_state size: 1.0 GB",
    ">KV Cache is allocated. dtype: torch.bfloat16, #tokens: 22144, K size: 1.25 GB, V size: 1.25 GB",
    ">Memory pool end. avail mem=5.00 GB",
    ">Capture target prefill CUDA graph begin. backend=breakable, avail mem=5.00 GB",
    "Capturing batches (bs=8 avail_mem=4.9 GB):  14%|#4        | 1/7 [00:01<00:06,  1.0s/it]",
    ">Capture target prefill CUDA graph end. elapsed=9.0 s, mem usage=0.1 GB",
    ">Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=16, avail mem=4.9 GB",
    ">Capture target verify CUDA graph end. elapsed=9.0 s",
    ">Capture draft decode CUDA graph begin. backend=full",
    ">Capture draft decode CUDA graph end. elapsed=1.0 s",
    ">max_total_num_tokens=22144, chunked_prefill_size=2048, max_running_requests=4, context_len=32768",
    ">INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
    ">The server is fired up and ready to roll!",
)


@pytest.mark.parametrize("rank", ["", "TP0", "DP0 TP0", "TP0 EP0", "ATTN_CP1 MOE_DP1 TP0"])
def test_the_wording_of_0_5_23(rank: str) -> None:
    _, facts = read(*NEW, rank=rank)
    assert runs(facts) == [
        *("imports", "arguments", "imports", "distributed", "weights", "draft weights", "kv cache"),
        *("piecewise graphs", "graphs", "draft graphs", "warm-up"),
    ]
    values = {fact.name: fact.value for fact in facts if fact.kind == "value"}
    assert (values["kv cache tokens"], values["max_running_requests"], values["weights GB"]) == (22144, 4, 28.9)
    bar = next(fact for fact in facts if fact.kind == "bar")
    assert (bar.name, bar.done, bar.total) == ("piecewise graphs", 1, 7)
    assert facts[-1].kind == "ready"


def test_other_ranks_move_no_phase() -> None:
    reader, _ = read(*NEW[:4], rank="TP0")
    for line in NEW[4:]:
        assert not [f for f in reader.feed(STAMP.format(" TP1") + line[1:]) if f.kind == "value"]
    assert reader.phase == "" or reader.phase == "warm-up"


def test_shards_are_a_bar_of_the_weights() -> None:
    _, facts = read(*NEW[:4], "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.1it/s]")
    assert (facts[-1].kind, facts[-1].name, facts[-1].done, facts[-1].total) == ("bar", "weights", 1, 4)


SCHEDULER = ">Scheduler hit an exception: Traceback (most recent call last):"
FRAME = '  File "/x/scheduler.py", line 1, in run_scheduler_process'
SIGQUIT = ">Received sigquit from a child process. It usually means the child failed."


@pytest.mark.parametrize(
    "line",
    [
        "line",
        "ValueError: Loaded weights leave no GPU memory for the KV cache. Raise --mem-fraction-static above 0.9",
        "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB.",
        "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 448 MiB",
        "Exception: Capture cuda graph failed: no kernel image is available for execution on the device",
        "ImportError: /x/common_ops.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEa",
        "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory",
        "ModuleNotFoundError: No module named 'flashinfer'",
        "RuntimeError: CUDA error: invalid device ordinal",
        "ValueError: context_length (131072) is greater than the derived context_length (40960)",
        "ValueError: DFLASH requires setting --speculative-draft-model-path.",
        "RuntimeError: Cannot find any model weights with `/m`",
        "OSError: You are trying to access a gated repo.",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072",
        "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.",
    ],
)
def test_the_exception_of_the_scheduler_decides(line: str) -> None:
    reader, facts = read(SCHEDULER, FRAME, "    x()", line, "", SIGQUIT, rank="TP1")
    fatal = [fact for fact in facts if fact.kind == "fatal"]
    assert [(fact.name, fact.text) for fact in fatal] == [("fatal-log", line)]
    assert reader.cause()[:2] == ("exception", line)


def test_the_first_exception_of_a_chain_is_the_cause() -> None:
    reader, _ = read(
        SCHEDULER, FRAME, "torch.OutOfMemoryError: CUDA out of memory.", "",
        "During handling of the above exception, another exception occurred:", "",
        "Traceback (most recent call last):", FRAME, "Exception: Capture cuda graph failed: CUDA out of memory.",
        "Possible solutions:", "1. set --mem-fraction-static to a smaller value", "", SIGQUIT,
    )  # fmt: skip
    assert reader.cause()[1] == "torch.OutOfMemoryError: CUDA out of memory."


def test_a_key_error_is_explained_by_the_next() -> None:
    second = "ValueError: The checkpoint has model type `x` but Transformers does not recognize this architecture."
    reader, _ = read(
        "Traceback (most recent call last):", FRAME, "KeyError: 'x'", "",
        "During handling of the above exception, another exception occurred:", "",
        "Traceback (most recent call last):", '  File "<frozen runpy>", line 198, in _run_module_as_main', second,
    )  # fmt: skip
    assert reader.cause()[:2] == ("exception", second)


def test_the_rank_that_failed_first_decides_and_consequences_do_not() -> None:
    reader, facts = read(
        STAMP.format(" TP1") + SCHEDULER[1:], FRAME, "torch.OutOfMemoryError: CUDA out of memory.", "",
        STAMP.format(" TP0") + SCHEDULER[1:], FRAME, "RuntimeError: Connection closed by peer", "", SIGQUIT,
        "Traceback (most recent call last):", '  File "<frozen runpy>", line 198, in _run_module_as_main',
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: -3).",
    )  # fmt: skip
    assert reader.cause()[1] == "torch.OutOfMemoryError: CUDA out of memory."
    assert [fact.kind for fact in facts].count("fatal") == 1


def test_a_consequence_of_another_rank_first_is_passed_over() -> None:
    reader, _ = read(
        STAMP.format(" TP0") + SCHEDULER[1:], FRAME, "RuntimeError: Connection reset by peer", "",
        STAMP.format(" TP1") + SCHEDULER[1:], FRAME, "RuntimeError: CUDA error: invalid device ordinal", "", SIGQUIT,
    )  # fmt: skip
    assert "invalid device ordinal" in reader.cause()[1]


def test_a_killed_child_is_told_from_a_failed_one() -> None:
    reader, facts = read(
        ">Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering SIGQUIT for cleanup...", SIGQUIT
    )
    assert [fact.name for fact in facts if fact.kind == "fatal"] == ["fatal-log"]
    assert reader.cause()[0] == "consequence" and "-9" in reader.cause()[1]
    reader, _ = read("sglang.service: A process of this unit has been killed by the OOM killer.", SIGQUIT)
    assert reader.cause()[0] == "unit" and "OOM killer" in reader.cause()[1]


def test_what_dies_after_a_stop_is_no_failure() -> None:
    reader, facts = read(
        ">SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
        SCHEDULER, FRAME, "EOFError", SIGQUIT,
    )  # fmt: skip
    assert not [fact for fact in facts if fact.kind == "fatal"]
    assert reader.cause() == ("", "", ())


def test_prefixed_tracebacks_are_read() -> None:
    reader, _ = read(
        ">Traceback (most recent call last):", '>  File "<frozen runpy>", line 198, in _run_module_as_main',
        ">RuntimeError: CUDA error: invalid device ordinal", rank="TP0",
    )  # fmt: skip
    assert reader.cause()[:2] == ("exception", "RuntimeError: CUDA error: invalid device ordinal")
    reader, _ = read(
        "[rank8]: Traceback (most recent call last):", f"[rank8]: {FRAME}", "[rank8]: ValueError: not divisible by 8"
    )
    assert reader.cause()[:2] == ("exception", "ValueError: not divisible by 8")


@pytest.mark.parametrize(
    "line",
    [
        ">Ignore import error when loading sglang.srt.models.x: No module named 'flashinfer.gemm'",
        ">Failed to get yes/no token IDs dynamically: 'NoneType' object has no attribute 'encode'",
        "[Gloo] Rank 0 is connected to 0 peer ranks.",
        "gpu-host:4000:4000 [0] NCCL INFO NET/Socket : Using [0]eth0",
        "/x/y.py:1670: UserWarning: tl.where with a non-boolean condition is deprecated",
        ">Attention backend not specified. Use flashinfer backend by default.",
        ">Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit",
    ],
)
def test_odd_lines_decide_nothing(line: str) -> None:
    reader, facts = read(*NEW[:4], line)
    assert not [fact for fact in facts if fact.kind in ("fatal", "wrapper", "exception")]
    assert reader.cause() == ("", "", ())


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (">max_running_requests is capped to 1 by the mamba state cache", "capped"),
        (">disable_cuda_graph is ignored for piecewise cuda graph", "flag-ignored"),
        (">DFLASH block size mismatch: draft 16, flag 8", "draft-mismatch"),
    ],
)
def test_warnings_worth_a_badge(line: str, name: str) -> None:
    _, facts = read(line)
    assert [fact.name for fact in facts if fact.kind == "warning"] == [name]


def test_ansi_and_glued_lines_are_read() -> None:
    _, facts = read("\x1b[32m[2026-11-29 14:23:36]\x1b[0m Load weight begin. avail mem=1 GB")
    assert "weights" in runs(facts)
    reader, _ = read(*NEW[:4])
    assert (
        reader.feed("\r  0%|  | 0/23 [00:00<?, ?it/s]" + STAMP.format("") + "Load weight end. mem usage=1.5 GB.")[
            -1
        ].value
        == 1.5
    )


def test_a_generic_program() -> None:
    reader = GenericReader()
    facts = [f for line in recordings.load("model-path-missing").text() for f in reader.feed(line)]
    assert [f.name for f in facts if f.kind == "fatal"] == ["fatal-log"]
    assert reader.cause()[0] == "exception" and "Repo id must be" in reader.cause()[1]
    assert not [f for f in facts if f.kind == "phase"]
    reader = GenericReader()
    assert reader.feed("server: error: unrecognized arguments: --x")[0].name == "exit-arguments"
    reader = GenericReader()
    assert reader.feed(
        "OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 1): address already in use"
    )
    assert reader.cause()[0] == "bind"
    reader = GenericReader()
    reader.feed("x.service: Failed at step EXEC spawning /nope: No such file or directory")
    assert reader.cause()[0] == "unit"
    assert GenericReader().cause() == ("", "", ())


WORDS = st.sampled_from(
    [
        *NEW,
        *(SCHEDULER, FRAME, SIGQUIT, "Traceback (most recent call last):", "ValueError: x", ""),
        *("During handling of the above exception, x", "usage: x", "x: error: y", "99%|#| 5/3"),
        *(">Capture cuda graph bs [1, 2, 4]", ">Capture cuda graph bs [,,]"),
        *(
            "\rCapturing batches (bs=2 avail_mem=1 GB):  33%|###3 | 1/3",
            ">Decode batch, #running-req: x, accept len: 1..2",
        ),
        ">Subprocess a crashed with exit code -9",
    ]
)


@given(st.lists(WORDS | st.text() | st.text().map(lambda t: f">{t}"), max_size=40))
def test_no_log_raises_and_one_failure_is_told_once(lines: list[str]) -> None:
    for reader in (SglangReader(), GenericReader()):
        facts = [
            f for line in lines for f in reader.feed(STAMP.format(" TP0") + line[1:] if line.startswith(">") else line)
        ]
        assert sum(fact.kind == "fatal" for fact in facts) <= 1
        open_phases: list[str] = []
        for fact in facts:
            if fact.kind == "phase":
                assert (fact.state == "run") == (not open_phases)
                open_phases = [fact.name] if fact.state == "run" else []
            if fact.kind == "bar":
                assert fact.done is not None and fact.total is not None and 0 <= fact.done <= fact.total
        how, cause, evidence = reader.cause()
        assert bool(how) == bool(cause) and len(evidence) <= 12


@pytest.mark.parametrize(
    "piece",
    [
        "Capturing ",
        "Capture ",
        "(bs=1 ",
        "1%|",
        "Traceback",
        "error: ",
        "A.",
        "99",
        ": fatal error: x",
        "[2026-11-29 ",
        "(choose ",
    ],
)
@pytest.mark.parametrize(
    "head", ["", ">", "Capturing batches ", ">Capture cuda graph bs [", ">Decode batch, #running-req: ", "usage: "]
)
def test_a_line_of_any_length_is_read_in_time(head: str, piece: str) -> None:
    began = time.process_time()
    reader, _ = read(
        "Traceback (most recent call last):", FRAME, head + piece * 30_000, *NEW[:5], head + piece * 30_000
    )
    reader.cause()
    assert time.process_time() - began < 2
