"""Unit files read as systemd reads them; where this machine has systemd 252, held to its own verifier."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddtree_console.demo import unitload
from ddtree_console.demo.host import SandboxHost

ANALYZE = shutil.which("systemd-analyze")


def systemd_version() -> str:
    """`252` or so, '' where there is none."""
    if ANALYZE is None:
        return ""
    out = subprocess.run([ANALYZE, "--version"], capture_output=True, text=True, check=False).stdout
    return out.split()[1] if out else ""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5.0),
        ("1min 30s", 90.0),
        ("100ms", 0.1),
        ("1.5h", 5400.0),
        ("infinity", float("inf")),
        ("2 s", 2.0),
        ("abc", None),
        ("5 parsecs", None),
        ("", None),
    ],
)
def test_time_spans(text: str, seconds: float | None) -> None:
    assert unitload.span(text) == seconds


def test_expansion_leaves_the_program_alone() -> None:
    env = {"A": "1 2", "B": "x"}
    argv = ["$A", "$A", "${A}", "a${B}b", "$$A", "$NONE", "${NONE}", "a$B"]
    assert unitload.expand(argv, env) == ["$A", "1", "2", "1 2", "axb", "$A", "", "a$B"]


def test_continuations_skip_comments_and_keep_their_line_number() -> None:
    text = "[Service]\nExecStart=/bin/a \\\n# no\n  b\\\\\nX=1"
    assert list(unitload.logical_lines(text)) == [(1, "[Service]"), (2, "ExecStart=/bin/a    b\\\\"), (5, "X=1")]


@given(st.text(alphabet=st.sampled_from("[]Service=Exec#;\\\n\"'%$ ab/"), max_size=200))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_read_without_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.service"
    path.write_text(text)
    unit = unitload.UnitText("x.service", "loaded", str(path))
    unitload.read_into(unit, path)
    unitload.finish(unit)
    assert unit.load in ("loaded", "bad-setting")


UNITS = {
    "good": "[Service]\nExecStart=/bin/true\nRestart=on-failure\nX-Ours=1\n[X-Section]\nA=b\n",
    "misspelt": "[Unit]\nDescripton=x\n[Service]\nExecStart=/bin/true\nTimeoutStopSecs=5\n",
    "no command": "[Service]\nExecStrat=/bin/true\n",
    "unknown section": "[Service]\nExecStart=/bin/true\n[Bar]\nA=b\n",
    "bad values": '[Service]\nExecStart=/bin/true\nRestart=sometimes\nRestartSec=abc\nEnvironment="A=b\n',
    "missing program": "[Service]\nExecStart=/nonexistent/program --flag\n",
    "relative program": "[Service]\nExecStart=foo/bar x\n",
    "unbalanced": '[Service]\nExecStart=/bin/echo "a b\n',
    "no equals": "[Service]\nExecStart=/bin/true\nno equals here\n",
}


@pytest.mark.skipif(systemd_version() != "252", reason="needs this machine's systemd-analyze 252 to compare with")
@pytest.mark.parametrize("name", UNITS)
async def test_verify_says_what_systemd_252_says(host: SandboxHost, name: str) -> None:
    path = host.write("/root/x.service", UNITS[name])
    ours = await host.exec(f"systemd-analyze verify --man=no {path}")
    argv = [str(ANALYZE), "verify", "--man=no", str(path)]
    real = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=False)
    # Other units of this machine that systemd loads beside ours have nothing to do with it.
    about_us = [line for line in real.stderr.splitlines() if re.search(r"\bx\.service", line)]
    assert ours.stderr.splitlines() == about_us
    assert ours.returncode == real.returncode
