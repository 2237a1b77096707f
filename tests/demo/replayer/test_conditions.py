"""The story's launches, and which recording each of them gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.config.load import load_fleet
from ddtree_console.demo import conditions, recordings
from ddtree_console.demo.recordings.substitute import flags_of
from ddtree_console.domain.engines import registry
from tests.demo.replayer.process import CONDITIONS, Replayer

TEXT = CONDITIONS.read_text("utf-8")
STORY = "--model-path /models/q --attention-backend triton --mem-fraction-static {} --context-length {}"


def choose(host: str, words: str, engine: str = "sglang") -> conditions.Choice:
    return conditions.choose(TEXT, host, engine, flags_of(words.split()))


@pytest.mark.parametrize(
    ("host", "words", "recording"),
    [
        ("ct129", STORY.format(0.88, 131072), "memory-pool-too-small"),
        ("ct129", STORY.format(0.95, 32768), "graph-capture-crash"),
        ("ct129", STORY.format(0.95, 32768) + " --disable-cuda-graph", "triton-crash-piecewise"),
        ("ct129", STORY.format(0.95, 32768) + " --disable-piecewise-cuda-graph", "graph-capture-crash"),
        (
            "ct129",
            STORY.format(0.95, 32768) + " --disable-cuda-graph --disable-piecewise-cuda-graph",
            "dflash-eager-then-frozen",
        ),
        ("ct200", STORY.format(0.85, 8192), "dflash-healthy"),
        ("ct200", STORY.format(0.85, 8192) + " --speculative-ddtree-budget 15", "dflash-healthy"),
        # argparse accepts a prefix that only one flag has
        ("ct129", "--model-path /models/q --mem-fraction 0.8", "memory-pool-too-small"),
        ("ct200", STORY.format(0.85, 8192) + " --disable-cuda-graph", "dflash-disable-cuda-graph-only"),
        ("ct200", STORY.format(0.05, 8192), "memory-pool-too-small"),
        ("ct200", "--model-path /typo --mem-fraction-static 0.85", "model-path-missing"),
        ("ct200", "--model-path /models/q --attention-backend tritonn", "invalid-choice"),
        ("ct200", "--model-path /models/q --disable-cuda-graphs-please", "unknown-flag"),
    ],
)
def test_the_story(host: str, words: str, recording: str) -> None:
    assert choose(host, words).recording == recording


def test_another_backend_comes_as_far_as_the_compiler_and_another_ptxas_serves() -> None:
    flags = flags_of(STORY.format(0.95, 32768).replace("triton", "flashinfer").split())
    mended = {"TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas"}
    assert conditions.choose(TEXT, "ct129", "sglang", flags).recording == "triton-crash-decode-capture"
    assert conditions.choose(TEXT, "ct129", "sglang", flags, mended).recording == "dflash-healthy"


def test_another_ptxas_mends_the_piecewise_graph() -> None:
    flags = flags_of((STORY.format(0.95, 32768) + " --disable-cuda-graph").split())
    mended = {"TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas"}
    assert conditions.choose(TEXT, "ct129", "sglang", flags, mended).recording == "dflash-disable-cuda-graph-only"
    assert conditions.choose(TEXT, "ct129", "sglang", flags, {"PATH": "/bin"}).recording == "triton-crash-piecewise"


def test_the_plug_in_serves_in_its_mode_and_refuses_a_backend() -> None:
    tree = STORY.format(0.85, 8192) + " --speculative-algorithm DDTREE"
    shadow = conditions.choose(TEXT, "ct200", "sglang", flags_of(tree.split()), {"DDTREE_MODE": "shadow"})
    assert shadow.recording == "tiny-shadow-31" and choose("ct200", tree).recording == "tiny-tree-63"
    for words in (tree.replace(" --attention-backend triton", ""), tree.replace("triton", "fa3")):
        assert choose("ct129", words).recording == choose("ct200", words).recording == "tiny-refused-fa3"
    assert choose("ct200", STORY.format(0.85, 8192).replace("triton", "fa3")).recording == "dflash-healthy"


def test_the_wrapper_serves_and_never_hangs() -> None:
    choice = choose("ct129", "--model /models/q --mode linear --drain-seconds 5", engine="wrapper")
    assert (choice.recording, choice.freeze) == ("dflash-eager-then-frozen", False)
    assert (
        choose("ct129", STORY.format(0.95, 1) + " --disable-cuda-graph --disable-piecewise-cuda-graph").freeze is False
    )


def test_every_rule_names_a_recording_that_exists_and_the_last_fits_all() -> None:
    rules = conditions.read(TEXT)
    assert {rule["recording"] for rule in rules} <= set(recordings.names())
    assert set(rules[-1]) == {"recording"}


def test_the_small_reader_reads_what_yaml_reads() -> None:
    ours: list[dict[str, Any]] = conditions.read(TEXT)
    assert ours == yaml.safe_load(TEXT)


@given(st.text())
def test_odd_rules_are_refused_by_line_or_read(text: str) -> None:
    try:
        rules = conditions.read(text)
    except ValueError as error:
        assert str(error).startswith("line ")
    else:
        assert all(isinstance(rule, dict) for rule in rules)


def test_the_unknown_flag_is_named_in_the_recorded_error() -> None:
    where = ("--conditions", str(CONDITIONS), "--host-name", "ct200", "--speed", "5000")
    with Replayer(*where, "--model-path", "/models/q", "--mem-fraktion", "0.9", "--weird=x") as run:
        status, lines = run.finish()
    assert status == 2
    assert lines[-1] == b"sglang serve: error: unrecognized arguments: --mem-fraktion 0.9 --weird x\n"


def test_the_wrong_choice_and_the_missing_model_are_named() -> None:
    where = ("--conditions", str(CONDITIONS), "--host-name", "ct200", "--speed", "5000")
    with Replayer(*where, "--model-path", "/models/q", "--attention-backend", "flashy") as run:
        status, lines = run.finish()
    assert status == 2
    assert b"invalid choice: 'flashy' (choose from 'triton'" in lines[-1]
    with Replayer(*where, "--model-path", "/typo") as run:
        status, lines = run.finish()
    assert status == 1
    assert b"'/typo'" in lines[-1]


@pytest.mark.parametrize(
    ("host", "service", "profile", "recording"),
    [
        ("ct129", "sglang-qwen", "ddtree-shadow", "memory-pool-too-small"),
        ("ct129", "sglang-qwen", "ddtree-shadow-small", "graph-capture-crash"),
        ("ct129", "sglang-qwen", "ddtree-shadow-small-nograph", "triton-crash-piecewise"),
        ("ct129", "sglang-qwen", "linear-wrapper", "dflash-eager-then-frozen"),
        ("ct200", "sglang-dflash", "dflash-smoke", "dflash-healthy"),
        ("ct200", "wrapper", "linear-wrapper", "dflash-eager-then-frozen"),
    ],
)
def test_the_shipped_profiles_live_the_story(host: str, service: str, profile: str, recording: str) -> None:
    fleet = load_fleet(Path(__file__).parents[3] / "profiles" / "fleet.yaml")
    wanted = fleet.profiles[profile]
    argv = registry.get(wanted.engine).command(wanted, fleet.service(f"{host}/{service}")).argv
    assert conditions.choose(TEXT, host, wanted.engine, flags_of(argv)).recording == recording
