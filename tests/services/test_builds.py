"""What a host is asked about a profile's build, and what that build makes of the profile; also asked for real."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ddtree_console.config.rules import load_rules
from ddtree_console.domain.build import Build, BuildFlag
from ddtree_console.domain.engines import registry
from ddtree_console.domain.engines.base import DialectError
from ddtree_console.domain.spec import Fleet, Host, Profile, Secret, Speculative
from ddtree_console.services import builds, verdicts
from ddtree_console.services.hostwatch import HostWatch
from ddtree_console.transport.bootstrap import launcher
from ddtree_console.transport.opener import opener
from tests.builds import trees

PYTHON = "/opt/venv/bin/python"


def test_what_is_asked_holds_no_secret() -> None:
    env: dict[str, Any] = {"PYTHONPATH": "/src", "HF_TOKEN": "hunter2", "OTHER": Secret("entry"), "X": "1"}
    asked = builds.request(Profile("p", python=PYTHON, user="llm", workdir="/srv", env=env))
    assert asked["python"] == PYTHON and asked["user"] == "llm" and asked["workdir"] == "/srv"
    assert asked["env"] == {"PYTHONPATH": "/src", "X": "1"} and asked["pythonpath"] == "/src"
    assert "hunter2" not in json.dumps(asked)


def test_an_adopted_unit_is_asked_about_as_its_text_says() -> None:
    text = (
        "[Service]\nUser=llm\nWorkingDirectory=-/srv/llm\nEnvironment=PYTHONPATH=/src API_KEY=hunter2\n"
        "EnvironmentFile=-/etc/default/llm\n"
        f"ExecStart={PYTHON} -u -m sglang.launch_server --model-path /m --port 1\n"
    )
    asked = builds.request(Profile("p", verbatim=text))
    assert (asked["python"], asked["user"], asked["workdir"]) == (PYTHON, "llm", "/srv/llm")
    assert asked["command"][:4] == [PYTHON, "-u", "-m", "sglang.launch_server"]
    assert asked["pythonpath"] == "/src" and "hunter2" not in json.dumps(asked["env"])
    assert asked["environment_files"] == ["-/etc/default/llm"]


def test_a_directive_of_the_profile_outranks_its_own_words() -> None:
    asked = builds.request(Profile("p", python=PYTHON, user="llm", unit={"User": "other", "WorkingDirectory": "/x"}))
    assert (asked["user"], asked["workdir"]) == ("other", "/x")


def test_the_wrapper_is_asked_for_its_help_when_nothing_else_tells() -> None:
    asked = builds.request(Profile("p", engine="wrapper", python=PYTHON))
    assert asked["command"] == [PYTHON, "-m", "ddtree_kernels.serve"]


COMMON = ("speculative-algorithm", "speculative-draft-model-path", "context-length")
BUILD = Build(
    "sglang",
    "0.5.12",
    PYTHON,
    "/v/sglang",
    "ast",
    tuple(BuildFlag(n, kind="str") for n in COMMON),
    algorithms=("DFLASH",),
)


def test_the_spelled_intent_is_marked_with_the_flags() -> None:
    profile = Profile("p", model="/m", flags={"context-length": 4096}, speculative=Speculative("linear", draft="/d"))
    assert {m.name: m.state for m in builds.flag_marks(profile, BUILD)} == dict.fromkeys(COMMON, "ok")


def test_an_intent_that_the_build_cannot_spell_is_a_mark_with_the_reason() -> None:
    tree = Speculative("ddtree", budget=15, draft="/d")
    profile = Profile("p", dialect="pr29907", model="/m", flags={"context-length": 4096}, speculative=tree)
    marks = builds.flag_marks(profile, BUILD)
    assert [(m.name, m.state) for m in marks] == [("speculative", "unknown"), ("context-length", "ok")]
    assert "has no DDTree" in marks[0].text
    with pytest.raises(DialectError, match="has no DDTree"):
        builds.fit(profile, BUILD)


async def test_a_host_is_asked_by_the_host_code_that_it_was_sent(tmp_path: Path) -> None:
    source = trees.write(trees.PR29907, tmp_path / "src")
    profile = Profile(
        "p", python=sys.executable, workdir=str(source), model="/m", flags={"cuda-graph-max-bs": 8, "hots": "x"},
        speculative=Speculative("ddtree", budget=15, draft="/d"),
    )  # fmt: skip
    roots = tmp_path / "roots.json"
    keys = {name: str(tmp_path / name) for name in ("etc", "run", "var", "opt", "cgroup")}
    roots.write_text(json.dumps({**keys, "nvml": False}))
    host = Host("here", local=True, python=sys.executable, roots=str(roots))
    opening = opener(Fleet("f", (host,)))
    watch = HostWatch(
        host, {}, opening, launcher(load_rules), registry.get, lambda: None, time.monotonic, random.random
    )
    running = asyncio.ensure_future(watch.run())
    try:
        build = await builds.inspect(watch.commands, profile)
        again = await builds.inspect(watch.commands, profile)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert build.package == str(source / "sglang") and build.ddtree["algorithm"] == "DDTREE"
    assert again.cached and again.flags == build.flags
    assert builds.fit(profile, build).dialect == "pr29907"
    marks = {m.name: m for m in builds.flag_marks(profile, build)}
    assert marks["cuda-graph-max-bs"].state == "ambiguous" and marks["hots"].wanted == "host"
    assert marks["speculative-ddtree-budget"].state == "ok"


def test_versions_that_the_release_does_not_ask_for_are_a_check() -> None:
    pins = {"torch": "==2.11.0", "sglang-kernel": "==0.4.4"}
    build = Build("sglang", "0.5.15", versions={"torch": "2.11.0+cu128", "sglang-kernel": "0.4.2"}, pins=pins)
    (check,) = verdicts.pins(build)
    assert (check.state, check.evidence) == ("warn", "sglang-kernel 0.4.2, wanted ==0.4.4")
    assert check.remedy == "install what sglang 0.5.15 asks for: sglang-kernel==0.4.4"
    assert (
        verdicts.pins(Build("sglang", "0.5.15", versions={"torch": "2.11.0"}, pins={"torch": "==2.11.0"}))[0].state
        == "ok"
    )
    assert verdicts.pins(Build()) == []
