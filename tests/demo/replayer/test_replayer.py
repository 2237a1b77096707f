"""The replayer is the recorded server: its bytes, its exit code, its refusals, its answers."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest

from ddtree_console.demo import recordings
from tests.demo.replayer.process import FOLDER, SPEED, Replayer

FAST = ("--speed", str(SPEED))
ENDING = [n for n in recordings.names() if recordings.load(n).rc is not None]


@pytest.mark.parametrize("name", ENDING)
def test_a_failing_run_has_the_recorded_bytes_and_exit_code(name: str) -> None:
    recording = recordings.load(name)
    with Replayer("--recording", name, "--speed", "5000") as run:
        status, lines = run.finish()
    assert status == recording.rc
    expected = [raw for _, raw in recording.lines]
    assert len(lines) == len(expected)
    differing = [a for a, b in zip(lines, expected, strict=True) if a != b]
    # the port alone was given, and only the line with the arguments says it
    assert all(b"server_args=" in line and f"port={run.port}".encode() in line for line in differing)


def test_times_are_the_recorded_ones_divided_by_the_speed() -> None:
    began = time.monotonic()
    with Replayer("--recording", "unknown-flag", "--speed", "20") as run:
        run.until(b"unrecognized")
        seconds = time.monotonic() - began
    assert seconds >= recordings.load("unknown-flag").lines[-1][0] / 20


def test_the_operators_arguments_are_where_the_run_repeats_its_own() -> None:
    flags = [
        "--model-path",
        "/models/mine",
        "--context-length",
        "32k",
        "--mem-fraction-static=0.95",
        "--disable-cuda-graph",
    ]
    flags += ["--speculative-ddtree-budget", "15", "--served-model-name", "it's"]
    with Replayer("--recording", "dflash-healthy", *FAST, *flags) as run:
        args = run.until(b"server_args=").decode()
        for text in (
            "(model_path='/models/mine', tokenizer_path='/models/qwen3-target'",
            "context_length=32768,",
            "mem_fraction_static=0.95,",
            "disable_cuda_graph=True, disable_cuda_graph_padding=False",
            f" port={run.port},",
            'served_model_name="it\'s",',
            "attention_backend='triton'",
            ", speculative_ddtree_budget=15)\n",
        ):
            assert text in args
        assert f"http://127.0.0.1:{run.port} ".encode() in run.until(b"Uvicorn running")
        run.until(b"fired up")
        info = run.ask("/server_info")[1]
        assert (info["context_length"], info["mem_fraction_static"], info["disable_cuda_graph"]) == (32768, 0.95, True)
        assert (info["port"], info["speculative_ddtree_budget"], info["max_total_num_tokens"]) == (run.port, 15, 321771)
        assert run.ask("/model_info")[1]["model_path"] == "/models/mine"
        assert run.ask("/v1/models")[1]["data"][0]["id"] == "it's"


def test_refused_then_503_then_200_and_a_token() -> None:
    recording = recordings.load("dflash-healthy")
    bound = next(at for at, raw in recording.lines if b"Uvicorn running" in raw)
    with Replayer("--recording", "dflash-healthy", "--speed", "30") as run:
        run.until(b"server_args=")
        assert run.refused()
        began = time.monotonic()
        run.wait_for("/health", 503)
        assert time.monotonic() - began > (bound - 25) / 30
        assert run.ask("/model_info")[0] == 200
        run.until(b"fired up")
        assert run.ask("/health") == (200, "")
        status, body = run.ask("/generate", {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 5}})
        assert status == 200
        assert body["output_ids"] == recording.responses["/generate"][1]["output_ids"][:5]
        assert (body["meta_info"]["prompt_tokens"], body["meta_info"]["completion_tokens"]) == (3, 5)
        run.until(b'"POST /generate HTTP/1.1" 200 OK')
        assert not any(b'"GET /health' in line and b"14:24:5" in line for line in run.lines)


def test_endpoints_answer_as_recorded() -> None:
    recording = recordings.load("dflash-healthy")
    with Replayer("--recording", "dflash-healthy", *FAST) as run:
        run.until(b"fired up")
        for path in ("/metrics", "/get_load"):
            assert run.ask(path)[0] == 200
        assert run.ask("/metrics")[1] == recording.responses["/metrics"][1]
        assert run.ask("/v1/loads") == (500, "Internal Server Error")
        assert run.until(b"AttributeError")
        assert run.ask("/nope") == (404, {"detail": "Not Found"})
        assert run.ask("/v1/completions", {"prompt": "Hi"})[0] == 404
        assert run.ask("/generate", {"text": "Hi"})[0] == 400
        run.ask("/get_server_info")
        assert run.until(b"deprecated")
        run.ask("/generate", {"input_ids": [1], "sampling_params": {"max_new_tokens": 80}})
        assert run.until(b"Decode batch")
        assert run.ask("/metrics")[1] == recording.responses["/metrics after"][1]


def test_a_key_is_asked_for() -> None:
    with Replayer("--recording", "dflash-healthy", *FAST, "--api-key", "k e y") as run:
        run.until(b"fired up")
        assert run.ask("/model_info") == (401, {"error": "Unauthorized"})
        assert run.ask("/model_info", key="wrong")[0] == 401
        assert run.ask("/model_info", key="k e y")[0] == 200
        assert run.ask("/health")[0] == 200
        assert any(b"api_key='k e y'" in line for line in run.lines)


def test_sigterm_drains_and_ends_as_recorded() -> None:
    recording = recordings.load("dflash-healthy")
    with Replayer("--recording", "dflash-healthy", *FAST) as run:
        run.until(b"fired up")
        run.process.send_signal(signal.SIGTERM)
        status, lines = run.finish()
    assert status == -9
    assert lines[-3:] == [raw for _, raw in recording.lines[-3:]]
    assert run.refused()


def test_sigterm_while_loading_ends_at_once() -> None:
    with Replayer("--recording", "dflash-healthy", "--speed", "20") as run:
        run.until(b"server_args=")
        run.process.send_signal(signal.SIGTERM)
        assert run.finish()[0] == -signal.SIGTERM


def test_a_really_taken_port_gives_the_real_line_and_no_end() -> None:
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", 0))
        owner.listen()
        with Replayer("--recording", "dflash-healthy", *FAST, port=owner.getsockname()[1]) as run:
            line = run.until(b"[Errno 98]")
            assert f"('127.0.0.1', {run.port}): address already in use".encode() in line
            run.until(b"Waiting for application shutdown")
            assert run.process.poll() is None
            run.process.send_signal(signal.SIGTERM)
            status, lines = run.finish()
    assert status == -9
    assert b"Received sigquit" in lines[-1]


def test_the_recorded_taken_port_never_ends_either() -> None:
    with Replayer("--recording", "port-in-use-never-exits", *FAST) as run:
        run.until(b"Waiting for application shutdown")
        assert run.process.poll() is None
        assert run.refused()
        run.process.send_signal(signal.SIGTERM)
        assert run.finish()[0] == -9


def test_the_frozen_scheduler_hangs_but_models_still_answer() -> None:
    with Replayer("--recording", "dflash-eager-then-frozen", *FAST) as run:
        run.until(b"fired up")
        run.wait_for("/health", 503)
        assert run.ask("/v1/models")[0] == 200
        with pytest.raises(TimeoutError):
            run.ask("/server_info", timeout=0.2)
        with pytest.raises(TimeoutError):
            run.ask("/generate", {"input_ids": [1]}, timeout=0.2)
        run.until(b"Health check failed")
    with Replayer("--recording", "dflash-eager-then-frozen", "--speed", "5000", "--no-freeze") as run:
        run.until(b"fired up")
        assert run.ask("/server_info")[0] == 200
        assert run.ask("/health")[0] == 200


def test_bars_are_lines_where_the_environment_asks_for_them() -> None:
    with Replayer("--recording", "dflash-healthy", *FAST, env={"TQDM_BAR_FORMAT": "{desc}\n"}) as run:
        run.until(b"Capturing batches (bs=8 ")
        run.until(b"fired up")
        assert run.ask("/model_info")[0] == 200
    with Replayer("--recording", "dflash-healthy", *FAST) as run:
        bar = run.until(b"Capturing batches (bs=8 ")
        assert bar.count(b"\r") > 10


def _children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_it_spawns_only_what_was_asked_for() -> None:
    with Replayer("--recording", "dflash-healthy", *FAST) as run:
        run.until(b"server_args=")
        assert _children(run.process.pid) == []
    with Replayer("--recording", "dflash-healthy", *FAST, "--children", "2") as run:
        run.until(b"fired up")
        pids = _children(run.process.pid)
        assert len(pids) == 2
        run.process.send_signal(signal.SIGTERM)
        run.finish()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            end = time.monotonic() + 10
            while time.monotonic() < end:
                os.kill(pid, 0)
                time.sleep(0.01)  # an orphan is reaped by init, which tells nobody


def test_it_runs_where_it_was_copied_to(tmp_path: Path) -> None:
    for name in ("replayer.py", "conditions.py", "conditions.yaml"):
        shutil.copy(FOLDER / name, tmp_path)
    shutil.copytree(FOLDER / "recordings", tmp_path / "recordings")
    where = ["--conditions", str(tmp_path / "conditions.yaml"), "--host-name", "ct129"]
    with Replayer(
        *where, *FAST, "--model-path", "/models/q", "--mem-fraction-static", "0.88", script=tmp_path / "replayer.py"
    ) as run:
        status, lines = run.finish()
    assert status == -9
    assert b"Not enough memory" in b"".join(lines)


@pytest.mark.parametrize("name", ["replayer.py", "conditions.py", "recordings/__init__.py", "recordings/substitute.py"])
def test_it_is_python_39(name: str) -> None:
    tree = ast.parse((FOLDER / name).read_text("utf-8"), feature_version=(3, 9))
    imported = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert not any(m.startswith("ddtree") for m in imported)


def test_no_recording_is_an_input_error() -> None:
    with Replayer(*FAST) as run:
        status, lines = run.finish()
    assert status == 2
    assert b"--recording" in b"".join(lines)
