"""From a profile and a host's answer to an estimate: the rendered command counts, and nothing is asked twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddtree_console.domain.memory import gpus
from ddtree_console.domain.memory.types import ModelFacts
from ddtree_console.domain.snapshot import Gpu, GpuProcess, GpuReport
from ddtree_console.domain.spec import Profile, Secret, Service, Speculative
from ddtree_console.services import memory
from tests.domain.memory import models

GiB = 2**30
SERVICE = Service("h1", "q", "q.service", 30000, gpus=(1,))
PROFILE = Profile(
    "p",
    python="/srv/venv/bin/python3",
    user="serve",
    workdir="/srv",
    model="/models/27b",
    dialect="stock-0.5.20",
    flags={"mem-fraction-static": 0.85},
    env={"HF_HOME": "/srv/hf", "HF_TOKEN": Secret("hf"), "PATH": "/bin"},
    speculative=Speculative("linear", draft="/models/draft"),
)
ANSWER = {
    "models": [
        {"path": "/models/27b", "config": models.QWEN36_27B, "weights": 29 * GiB, "problems": []},
        {"path": "/models/draft", "config": models.DRAFT_27B, "weights": 3 * GiB, "problems": []},
    ],
    "starts": [],
}


class Host:
    """A host that answers the one command."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, Any]] = []

    async def call(self, command: str, payload: Any, timeout: float) -> dict[str, Any]:
        """The canned answer."""
        self.asked.append((command, payload))
        return self.answer


async def known(profile: Profile = PROFILE, answer: dict[str, Any] | None = None) -> memory.Facts:
    """What the host says."""
    found = await memory.facts(Host(ANSWER if answer is None else answer), SERVICE, profile)  # type: ignore[arg-type]
    assert found is not None
    return found


def report(*processes: GpuProcess, free: int = 90, used: int = 6) -> GpuReport:
    """Two GPUs; the slot's own is the second."""
    own = Gpu(1, "G1", total=96 * GiB, used=used * GiB, free=free * GiB, processes=processes)
    return GpuReport("nvml", gpus=(Gpu(0, "G0", total=96 * GiB, used=90 * GiB, free=6 * GiB), own))


async def test_the_host_is_asked_as_the_units_user_and_with_no_secret() -> None:
    host = Host(ANSWER)
    await memory.facts(host, SERVICE, PROFILE)  # type: ignore[arg-type]
    assert host.asked == [
        (
            "model",
            {
                "paths": ["/models/27b", "/models/draft"],
                "user": "serve",
                "workdir": "/srv",
                "revision": "main",
                "env": {"HF_HOME": "/srv/hf"},
                "unit": "q.service",
            },
        )
    ]


async def test_an_edit_is_judged_without_asking_again() -> None:
    facts = await known()
    one = memory.estimate(SERVICE, PROFILE, facts, report(), "0.5.20")
    less = replace(PROFILE, flags={"mem-fraction-static": 0.7})
    two = memory.estimate(SERVICE, less, facts, report(), "0.5.20")
    assert one is not None and two is not None and one.tokens and two.tokens
    assert one.tokens > two.tokens and one.capacity == 90 * GiB


async def test_arguments_count_as_the_flags_they_are() -> None:
    facts = await known()
    told = memory.inputs(SERVICE, replace(PROFILE, args=("--kv-cache-dtype", "fp8_e4m3")), facts, report(), "0.5.20")
    assert told is not None and told.flags["kv-cache-dtype"] == "fp8_e4m3"


async def test_an_adopted_units_own_text_counts() -> None:
    text = "[Service]\nExecStart=/srv/venv/bin/python3 -m sglang.launch_server --model-path /models/27b --tp-size 2\n"
    adopted = replace(PROFILE, verbatim=text, flags={"tp-size": 2}, speculative=None)
    line = memory.line_of(adopted, SERVICE)
    assert line is not None and (line.model, line.draft, line.flags) == ("/models/27b", "", {"tp-size": 2})


async def test_an_intent_that_the_build_cannot_spell_is_still_counted() -> None:
    tree = replace(PROFILE, speculative=Speculative("ddtree", budget=31, draft="/models/draft"))
    facts = await known(tree)
    told = memory.inputs(SERVICE, tree, facts, report(), "0.5.20")
    assert told is not None and told.flags["speculative-num-draft-tokens"] == 32
    found = memory.estimate(SERVICE, tree, facts, report(), "0.5.20")
    assert found is not None and "counted without the build's own spelling" in found.problems[0]


async def test_another_model_is_not_judged_by_the_old_ones_files() -> None:
    facts = await known()
    for changed in (
        replace(PROFILE, model="/models/other"),
        replace(PROFILE, speculative=Speculative("linear", draft="/models/other")),
    ):
        found = memory.estimate(SERVICE, changed, facts, report(), "0.5.20")
        assert found is not None and found.verdict == "not known"
        assert "was changed since the host was asked" in found.problems[0]


async def test_other_engines_have_no_estimate() -> None:
    facts = await known()
    for engine in ("wrapper", "generic"):
        other = replace(PROFILE, engine=engine, command=("/bin/true",), dialect=None, speculative=None)
        assert memory.estimate(SERVICE, other, facts, report(), "") is None
    assert memory.estimate(SERVICE, PROFILE, None, report(), "") is None


@pytest.mark.parametrize(
    "answer",
    [{}, {"models": None}, {"models": [1, "x"]}, {"models": [{"config": 3, "weights": "many", "problems": 7}]}],
)
async def test_an_answer_of_another_kind_is_not_known(answer: dict[str, Any]) -> None:
    found = memory.estimate(SERVICE, PROFILE, await known(answer=answer), report(), "0.5.20")
    assert found is not None and found.verdict == "not known" and found.problems


async def test_the_release_of_the_dialect_counts_until_the_build_was_read() -> None:
    facts = await known()
    for release, wanted in (("", "0.5.20"), ("0.5.12", "0.5.12")):
        told = memory.inputs(SERVICE, PROFILE, facts, report(), release)
        assert told is not None and told.release == wanted


OWN, FOREIGN = GpuProcess(7, 50 * GiB, unit="q.service"), GpuProcess(8, 20 * GiB, unit="other.service")
BLIND = GpuProcess(7, None, unit="q.service")


@pytest.mark.parametrize(
    ("processes", "free", "used", "wanted"),
    [
        ((), 90, 6, 90),
        ((OWN,), 40, 56, 90),
        ((OWN, FOREIGN), 20, 76, 70),
        ((FOREIGN,), 70, 26, 70),
        ((BLIND,), 40, 56, 96),
        ((BLIND, FOREIGN), 20, 76, None),
    ],
)
def test_free_memory_is_counted_as_if_the_service_were_stopped(
    processes: tuple[GpuProcess, ...], free: int, used: int, wanted: int | None
) -> None:
    found = gpus.without(report(*processes, free=free, used=used), (1,), "q.service")
    assert found == (((), ()) if wanted is None else ((wanted * GiB,), (96 * GiB,)))


def test_a_gpu_that_is_lost_or_not_there_is_not_known() -> None:
    lost = GpuReport("nvml", gpus=(Gpu(1, fault="lost"),))
    for there in (lost, GpuReport(), report()):
        assert gpus.without(there, (1, 5), "q.service") == ((), ())
    facts = memory.Facts(memory.Line("/models/27b"), ModelFacts("/models/27b", models.QWEN36_27B, GiB))
    plain = replace(PROFILE, speculative=None)
    found = memory.estimate(SERVICE, plain, facts, lost, "0.5.20")
    assert found is not None and found.problems == ("not known, because the free memory of the GPUs is not known",)
