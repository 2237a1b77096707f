"""The engines' launches, and the launch editor's validation."""

from __future__ import annotations

from typing import Any

import pytest

from ddtree_console.domain.engines import generic, registry, sglang_launch, wrapper
from ddtree_console.domain.engines.base import DialectError
from ddtree_console.domain.spec import Profile, Service, Speculative

SLOT = Service("h", "s", "s.service", 30001, (1,))
FLAGS = {flag.name: flag for flag in (*sglang_launch.FLAGS, *wrapper.FLAGS)}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("mem-fraction-static", " 0.88 ", 0.88),
        ("mem-fraction-static", "9e-1", 0.9),
        ("context-length", "128k", 131072),
        ("context-length", "1M", 1048576),
        ("context-length", "0.5k", 512),
        ("context-length", "32_768", 32768),
        ("max-running-requests", "4", 4),
        ("disable-cuda-graph", "true", True),
        ("disable-cuda-graph", "No", False),
        ("disable-cuda-graph", "", True),
        ("kv-cache-dtype", "fp8_e5m2", "fp8_e5m2"),
        ("chunked-prefill-size", "-1", -1),
        ("drain-seconds", "2.5", 2.5),
    ],
)
def test_good_values(name: str, text: str, value: Any) -> None:
    read = sglang_launch.validate_flag(FLAGS[name], text)
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("mem-fraction-static", "88%", "read '88%', wanted a number such as 0.88"),
        ("mem-fraction-static", "88", "read 88, wanted 0.05 to 0.99"),
        ("mem-fraction-static", "nan", "wanted 0.05 to 0.99"),
        ("mem-fraction-static", "inf", "wanted 0.05 to 0.99"),
        ("context-length", "1.0001k", "wanted a whole number"),
        ("context-length", "1e999k", "wanted a whole number"),
        ("context-length", "lots", "read 'lots'"),
        ("max-running-requests", "4k", "wanted a whole number"),
        ("max-running-requests", "0", "read 0, wanted 1 to 65536"),
        ("max-total-tokens", "0", "wanted at least 1"),
        ("disable-cuda-graph", "maybe", "wanted true or false"),
        ("kv-cache-dtype", "  ", "read nothing"),
        ("attention-backend", "a\nb", "newline"),
    ],
)
def test_bad_values_say_what_was_read(name: str, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        sglang_launch.validate_flag(FLAGS[name], text)
    assert str(caught.value).startswith(f"{name}: ")


def test_sglang_launch() -> None:
    profile = Profile(
        "p", model="/m", python="/e/python3", args=("--x", "y z"), dialect="stock-0.5.12",
        flags={"mem-fraction-static": 0.9, "trust-remote-code": True, "disable-radix-cache": False, "bs": [1, 2]},
        speculative=Speculative("linear", draft="/d"),
    )  # fmt: skip
    assert sglang_launch.command(profile, SLOT).argv == (
        "/e/python3", "-m", "sglang.launch_server", "--model-path", "/m", "--mem-fraction-static", "0.9",
        "--trust-remote-code", "--bs", "1", "2", "--speculative-algorithm", "DFLASH", "--speculative-draft-model-path",
        "/d", "--x", "y z", "--host", "127.0.0.1", "--port", "30001",
    )  # fmt: skip


def test_flags_that_the_profile_states_win_over_the_intent() -> None:
    profile = Profile("p", model="/m", dialect="plugin", speculative=Speculative("ddtree", budget=15, draft="/d"),
                      flags={"speculative-num-draft-tokens": 33, "host": "0.0.0.0"})  # fmt: skip
    argv = sglang_launch.command(profile, SLOT).argv
    assert argv[argv.index("--speculative-num-draft-tokens") + 1] == "33"
    assert argv.count("--host") == 1 and argv[argv.index("--host") + 1] == "0.0.0.0"


def test_warnings() -> None:
    flags = {"disable-cuda-graph": True, "api-key": "s3cret", "log-level": "warning"}
    found = sglang_launch.command(Profile("p", model="/m", dialect="stock-0.5.12", flags=flags), SLOT).warnings
    assert len(found) == 3 and not any("s3cret" in text for text in found)
    found = sglang_launch.command(Profile("p", model="/m", args=("--api-key=s3cret",)), SLOT).warnings
    assert found == ("--api-key is an argument: systemctl show, /proc and SGLang's own log reveal it",)


@pytest.mark.parametrize(
    ("intent", "words"),
    [
        (None, []),
        (Speculative(), ["--mode", "autoregressive"]),
        (Speculative("linear"), ["--mode", "linear"]),
        (Speculative("ddtree", budget=31, draft="/d"), ["--mode", "ddtree", "--budget", "31", "--draft", "/d"]),
        (Speculative("ddtree", shadow=True), ["--mode", "shadow-linear"]),
    ],
)
def test_wrapper_launch(intent: Speculative | None, words: list[str]) -> None:
    argv = wrapper.command(Profile("p", "wrapper", model="tiny", python="/e/python3", speculative=intent), SLOT).argv
    assert list(argv) == ["/e/python3", "-m", "ddtree_kernels.serve", "--model", "tiny", *words,
                          "--host", "127.0.0.1", "--port", "30001"]  # fmt: skip


def test_generic_launch_is_as_given_with_the_slots_port() -> None:
    command = generic.command(Profile("p", "generic", command=("/x", "--port", "1", "a b"), args=("z",)), SLOT)
    assert command.argv == ("/x", "--port", "30001", "a b", "z") and command.warnings == ()
    command = generic.command(Profile("p", "generic", command=("/x", "--port=1")), SLOT)
    assert command.argv == ("/x", "--port=30001")
    assert "30001" in generic.command(Profile("p", "generic", command=("/x",)), SLOT).warnings[0]


@pytest.mark.parametrize("engine", ["sglang", "wrapper"])
def test_a_model_is_needed(engine: str) -> None:
    with pytest.raises(ValueError, match="model is missing"):
        registry.command(Profile("p", engine), SLOT)


def test_generic_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match="needs command"):
        registry.command(Profile("p", "generic"), SLOT)
    with pytest.raises(ValueError, match="cannot spell speculation"):
        registry.command(Profile("p", "generic", command=("/x",), speculative=Speculative("linear")), SLOT)
    with pytest.raises(DialectError):
        registry.command(Profile("p", "wrapper", model="m", speculative=Speculative("linear", shadow=True)), SLOT)
