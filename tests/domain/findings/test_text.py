"""What stands before a message, and where an entry is cut."""

from __future__ import annotations

import pytest

from ddtree_console.domain.findings.text import pieces, strip


@pytest.mark.parametrize(
    ("line", "rank", "message"),
    [
        ("[2026-01-01 10:00:00] Load weight end.", "", "Load weight end."),
        ("[2026-01-01 10:00:00 TP0] Load weight end.", "TP0", "Load weight end."),
        ("[2026-01-01 10:00:00 ATTN_CP1 MOE_DP1 TP2] x", "ATTN_CP1 MOE_DP1 TP2", "x"),
        ("[2026-01-01 10:00:00,123 DP0 TP0] x", "DP0 TP0", "x"),
        ("[TP0] Using ModelOptModelLoader", "TP0", "Using ModelOptModelLoader"),
        ("[DP0 TP0] x", "DP0 TP0", "x"),
        ("(Worker_TP1 pid=2001) ERROR FAILED: [code=127] x.o", "Worker_TP1", "FAILED: [code=127] x.o"),
        ("(EngineCore_DP0 pid=9) ERROR 04-06 14:51:04 [core.py:7] ValueError: y", "EngineCore_DP0", "ValueError: y"),
        ("(RayWorkerWrapper pid=9, ip=10.0.0.2) x", "RayWorkerWrapper", "x"),
        ("[rank8]: Traceback (most recent call last):", "rank8", "Traceback (most recent call last):"),
        ("[rank8]:[W516 12:46:57.499514954 ProcessGroupNCCL.cpp:1826] z", "rank8", "z"),
        ('[2026-02-26 15:56:59] ERROR:   File "/x.py", line 1', "", '  File "/x.py", line 1'),
        ("[2026-02-26 15:56:59] ERROR: KeyError: 'x'", "", "KeyError: 'x'"),
        ("2025-04-05T00:01:19.509514570Z [2025-04-05 00:01:19] y", "", "y"),
        ("2025-03-25 09:00:02,001 - INFO - flashinfer.jit: y", "", "flashinfer.jit: y"),
        ("llm0-1  | [2025-07-19 23:29:33] Memory pool end.", "", "Memory pool end."),
        ("[ 1234.567890] Out of memory: Killed process 1 (x)", "", "Out of memory: Killed process 1 (x)"),
        ("INFO:     Uvicorn running", "", "Uvicorn running"),
        ("[sgl_kernel] CRITICAL: Could not load", "", "[sgl_kernel] CRITICAL: Could not load"),
        ("[1/18] /opt/nvcc -c x.cu", "", "[1/18] /opt/nvcc -c x.cu"),
        ("Error: No module named 'x'", "", "Error: No module named 'x'"),
        ("", "", ""),
    ],
)
def test_prefixes_are_taken_off(line: str, rank: str, message: str) -> None:
    found = strip(line)
    assert (found.rank, found.message) == (rank, message)
    assert found.prefix + message == line


def test_an_entry_is_cut_where_a_terminal_would() -> None:
    assert pieces("a\rb\nc") == ["a", "b", "c"]
    assert pieces("\x1b[32m[2026-01-01 10:00:00]\x1b[0m x") == ["[2026-01-01 10:00:00] x"]
    glued = " 0%|  | 0/23 [00:00<?, ?it/s][2026-01-01 10:00:00] Load weight end."
    assert pieces(glued)[-1] == "[2026-01-01 10:00:00] Load weight end."
    assert pieces("x server_args=ServerArgs(date='[2026-01-01 10:00:00]')") == [
        "x server_args=ServerArgs(date='[2026-01-01 10:00:00]')"
    ]


def test_a_bar_that_was_drawn_often_is_its_last_state() -> None:
    bar = "\r".join(f"Capturing batches (bs={n}):  1%|# | {n}/99" for n in range(50))
    assert pieces(f"{bar}\rValueError: x") == ["Capturing batches (bs=49):  1%|# | 49/99", "ValueError: x"]
