"""The wrapper's launch: a unit that systemd is told about, and flags that the server itself takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddtree_console.config.load import load_fleet
from ddtree_console.domain.engines import wrapper
from ddtree_console.domain.render import render_unit
from ddtree_console.domain.spec import Profile, Service, Speculative
from ddtree_kernels.decode.settings import DEFAULT_BUDGET
from ddtree_kernels.serve import arguments

SLOT = Service(host="h", name="w", unit="w.service", port=30007)


def profile(**more: Any) -> Profile:
    return Profile(name="p", engine="wrapper", python="/opt/env/bin/python3", model="tiny", **more)


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ((), "notify"),
        (("/opt/bin/ddtree-wrapper",), "notify"),
        (("python3", "-m", "ddtree_kernels.serve"), "notify"),
        (("/opt/other-server",), "simple"),
    ],
)
def test_only_our_server_is_waited_for_by_systemd(command: tuple[str, ...], kind: str) -> None:
    text = render_unit(profile(command=command), SLOT).text
    assert f"\nType={kind}\n" in text and "\nTimeoutStartSec=infinity\n" in text


def test_a_profile_may_say_otherwise_and_other_engines_are_simple() -> None:
    assert "\nType=simple\n" in render_unit(profile(unit={"Type": "simple"}), SLOT).text
    assert "\nType=simple\n" in render_unit(Profile(name="q", engine="sglang", model="/m"), SLOT).text


@pytest.mark.parametrize(
    ("intent", "mode"),
    [
        (Speculative(kind="none"), "autoregressive"),
        (Speculative(kind="linear", draft="/d"), "linear"),
        (Speculative(kind="ddtree", budget=9, draft="/d"), "ddtree"),
        (Speculative(kind="ddtree", shadow=True, budget=15), "shadow-linear"),
    ],
)
def test_the_server_takes_what_an_intent_becomes(intent: Speculative, mode: str) -> None:
    flags = {
        "mem-fraction-static": 0.5, "context-length": "32k", "disable-cuda-graph": True, "spine": True,
        "draft-temperature": 0.8, "max-total-tokens": 4096, "max-queued-requests": 8, "drain-seconds": 2,
    }  # fmt: skip
    assert set(flags) | {"budget"} == {flag.name for flag in wrapper.FLAGS}
    command = wrapper.command(profile(speculative=intent, flags=flags), SLOT)
    assert command.argv[:3] == ("/opt/env/bin/python3", "-m", "ddtree_kernels.serve")
    taken = arguments.parse(command.argv[3:])
    assert (taken.mode, taken.model_path, taken.port, taken.host) == (mode, "tiny", 30007, "127.0.0.1")
    assert taken.budget == (intent.budget or DEFAULT_BUDGET) and taken.draft == intent.draft
    assert (taken.mem_fraction_static, taken.context_length, taken.disable_cuda_graph) == (0.5, 32768, True)
    assert (taken.drain_seconds, taken.max_queued_requests, taken.draft_temperature) == (2, 8, 0.8)


@pytest.mark.parametrize(("name", "mode"), [("linear-wrapper", "linear"), ("ddtree-wrapper", "ddtree")])
def test_the_profiles_that_are_shipped_start_this_server(name: str, mode: str) -> None:
    fleet = load_fleet(Path(__file__).parents[2] / "profiles/fleet.yaml")
    taken = arguments.parse(wrapper.command(fleet.profiles[name], SLOT).argv[3:])
    assert taken.mode == mode and taken.draft == "/models/qwen3-8b-dflash" and taken.drain_seconds == 5
