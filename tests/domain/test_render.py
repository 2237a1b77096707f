"""Complete units, the same each time, that systemd accepts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ddtree_console.domain import adoption, launch
from ddtree_console.domain.engines.base import DialectError
from ddtree_console.domain.plan import SECRET_ENV
from ddtree_console.domain.render import render_unit
from ddtree_console.domain.spec import Profile, Secret, Service, Speculative
from ddtree_console.domain.unitfile import parse
from tests.domain.tricky import tricky_values

SLOT = Service("ct129", "sglang-qwen", "sglang-qwen.service", 30000, (0, 1))
PROFILE = Profile(
    "ddtree-shadow", dialect="plugin", python="/e/bin/python3", user="root", workdir="/root", model="/m",
    flags={"mem-fraction-static": 0.88}, env={"HF_TOKEN": Secret("hub"), "LD_LIBRARY_PATH": "/a:/b c"},
    speculative=Speculative("ddtree", True, 15, "/d"),
)  # fmt: skip


def test_the_whole_unit() -> None:
    assert (
        render_unit(PROFILE, SLOT).text
        == f"""\
# Managed by ddtree-console: profile ddtree-shadow, slot ct129/sglang-qwen.
# Change the profile and deploy it; an edit here is found and refused at the next deployment.

[Unit]
Description=DDTree service sglang-qwen (ddtree-shadow)
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=1800
StartLimitBurst=3

[Service]
Type=simple
User=root
WorkingDirectory=/root
Environment="CUDA_DEVICE_ORDER=PCI_BUS_ID"
Environment="CUDA_VISIBLE_DEVICES=0,1"
Environment="TQDM_BAR_FORMAT={{desc}}: {{percentage:3.0f}}%% {{n_fmt}}/{{total_fmt}} {{elapsed}}<{{remaining}}\\n"
Environment="TQDM_MININTERVAL=1"
Environment="DDTREE_MODE=shadow"
Environment="DDTREE_BUDGET=15"
Environment="LD_LIBRARY_PATH=/a:/b c"
EnvironmentFile={SECRET_ENV}
ExecStart=/e/bin/python3 -m sglang.launch_server \\
    --model-path /m \\
    --mem-fraction-static 0.88 \\
    --speculative-algorithm DDTREE \\
    --speculative-draft-model-path /d \\
    --speculative-num-draft-tokens 16 \\
    --host 127.0.0.1 \\
    --port 30000
Restart=on-failure
RestartSec=10
TimeoutStartSec=infinity
TimeoutStopSec=60
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
"""
    )


def test_what_is_said_beside_the_text() -> None:
    unit = render_unit(PROFILE, SLOT)
    assert unit.secrets == {"HF_TOKEN": "hub"}
    assert unit.set_flags["speculative-num-draft-tokens"] == 16 and unit.set_flags["mem-fraction-static"] == 0.88
    assert unit.command.startswith("CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1 DDTREE_MODE=shadow")
    assert unit.command.endswith("--host 127.0.0.1 --port 30000") and "TQDM" not in unit.command
    assert unit == render_unit(PROFILE, SLOT)


def test_directives_of_the_profile_override() -> None:
    given = {"Restart": "no", "TimeoutStopSec": None, "After": ["a", "b"], "Nice": 5, "Install.Alias": "x.service"}
    unit = parse(render_unit(replace(PROFILE, unit=given), SLOT).text)
    assert unit.values("Service", "Restart") == ("no",) and unit.get("Service", "TimeoutStopSec") is None
    assert unit.values("Unit", "After") == ("a", "b") and unit.get("Service", "Nice") == "5"
    assert unit.get("Install", "Alias") == "x.service" and unit.get("Service", "RestartSec") == "10"


def test_a_rendered_unit_adopts_into_the_profile_that_made_it() -> None:
    plain = replace(PROFILE, speculative=None, dialect=None, env={"LD_LIBRARY_PATH": "/a:/b c"})
    found = adoption.adopt(render_unit(plain, SLOT).text, name=plain.name)
    assert (found.port, found.gpus, found.warnings) == (30000, (0, 1), ())
    assert replace(found.profile, verbatim=None) == replace(plain, flags={**plain.flags, "host": "127.0.0.1"})


@pytest.mark.parametrize("value", tricky_values())
def test_tricky_values_come_out_of_the_unit_as_they_went_in(value: str) -> None:
    unit = render_unit(replace(PROFILE, args=(value,), env={"TRICKY": value}, dialect=None, speculative=None), SLOT)
    read = launch.read(unit.text)
    assert read.problem == "" and read.argv[-5] == value == read.env["TRICKY"][-1].value
    assert unit.text.count("[Service]") == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "a\nb"}, "newline"),
        ({"args": ("a\0",)}, "NUL"),
        ({"env": {"A": "x\ny"}}, "environment A holds a newline"),
        ({"env": {"A-B": "x"}}, "no name of an environment variable"),
        ({"unit": {"Nice": "1\nExecStartPre=/bin/evil"}}, "unit Nice holds a newline"),
        ({"unit": {"Nice": "1\\"}}, "backslash"),
        ({"unit": {"Nice": "1\rX=2"}}, "carriage return"),
        ({"user": "a\nb"}, "newline"),
        ({"name": "a\n[Service]"}, "newline"),
        ({"python": '/a"b'}, "quotes"),
        ({"dialect": "stock-0.5.12"}, "cannot do ddtree"),
        ({"model": None}, "model is missing"),
    ],
)
def test_what_cannot_be_rendered_is_refused(change: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        render_unit(replace(PROFILE, **change), SLOT)  # type: ignore[arg-type]
    assert isinstance(caught.value, DialectError) == ("ddtree" in reason)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_verifies_the_unit(tmp_path: Path) -> None:
    profile = replace(
        PROFILE, python=sys.executable, user=None, args=tuple(tricky_values()), env={"T": tricky_values()[8]}
    )
    path = tmp_path / SLOT.unit
    path.write_bytes(render_unit(profile, SLOT).text.encode())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, timeout=30, check=False
    )
    said = [line for line in done.stderr.decode().splitlines() if SLOT.unit in line]
    assert said == []
    path.write_bytes(render_unit(replace(profile, unit={"Restrat": "no"}), SLOT).text.encode())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, timeout=30, check=False
    )
    assert b"Restrat" in done.stderr
