"""Commands as processes of their own: pipes that break, ctrl+c, colours, and what is imported."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def start(*argv: str, told: int = 2, out: int = subprocess.PIPE, **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cli.scripted", str(told), *argv],
        stdout=out,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm-256color", **env},
    )


def test_a_broken_pipe_is_quiet() -> None:
    process = start("logs", "h1/s1")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(20) == 0
    assert process.stderr.read().splitlines() == [b'{"started": true}']


def test_ctrl_c_leaves_the_transaction_running_and_says_how_to_come_back() -> None:
    process = start("deploy", "h1/s1")
    assert process.stdout is not None
    assert process.stderr is not None
    assert b"deploy h1/s1" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    told = process.stderr.read().decode()
    assert "transaction t1 goes on on the host; `ddtree-console watch h1/s1` shows it" in told
    assert "Traceback" not in told


def _on_a_terminal(**env: str) -> bytes:
    ours, theirs = pty.openpty()
    process = start("deploy", "h1/s1", told=3, out=theirs, **env)
    os.close(theirs)
    seen = b""
    while select.select([ours], [], [], 20)[0]:
        try:
            chunk = os.read(ours, 4096)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    assert process.wait(20) == 0
    os.close(ours)
    return seen


def test_colours_only_where_they_are_wanted() -> None:
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    assert b"\x1b[32m" in _on_a_terminal(**env, NO_COLOR="")
    assert b"\x1b[" not in _on_a_terminal(NO_COLOR="1")
    piped = start("deploy", "h1/s1", told=3)
    out, _ = piped.communicate(timeout=20)
    assert b"\x1b[" not in out
    assert piped.returncode == 0


def test_a_terminal_without_unicode_still_gets_its_lines() -> None:
    process = start("deploy", "h1/s1", told=3, PYTHONIOENCODING="ascii")
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert b"deploy h1/s1" in out


def test_the_command_line_loads_nothing_heavy() -> None:
    code = (
        "import sys, ddtree_console.cli, ddtree_console.cli.run;"
        "ddtree_console.cli.main(['--version']);"
        "heavy = ('textual', 'torch', 'triton', 'asyncssh', 'httpx', 'pydantic', 'yaml');"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines()[-1] == b"[]"
