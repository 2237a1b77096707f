"""Canned findings, preflights and forecasts. Figures are those of the recordings of SGLang 0.5.12 on an H200."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ddtree_console.domain.build import Build, BuildFlag, FlagMark
from ddtree_console.domain.engines.sglang_launch import FLAGS
from ddtree_console.domain.findings.types import Edit, Evidence, Finding, Remedy
from ddtree_console.domain.memory.types import Estimate, Term
from ddtree_console.domain.snapshot import Drift, FleetSnapshot, ServiceSnapshot
from ddtree_console.domain.spec import Profile
from ddtree_console.services.api import Check, HistoryEntry, JournalLine, Preflight
from tests.ui import canned
from tests.ui.canned import WALL

GB = 10**9
SINCE_0514 = (
    "disable-prefill-cuda-graph",
    "disable-decode-cuda-graph",
    "cuda-graph-max-bs-decode",
    "cuda-graph-max-bs-prefill",
)

BUILD = Build(
    engine="sglang",
    release="0.5.12",
    python="/root/ml-env/bin/python3",
    package="/root/ml-env/lib/python3.12/site-packages/sglang",
    source="ast",
    flags=(
        *(BuildFlag(f.name, kind=f.kind) for f in FLAGS if f.name not in SINCE_0514),
        BuildFlag("quantization", kind="str", choices=("awq", "fp8"), help="quantization of the weights"),
    ),
    versions={"sglang": "0.5.12", "torch": "2.11.0+cu130", "triton": "3.6.0", "sglang-kernel": "0.4.2.post2"},
    cuda="13.0",
    algorithms=("EAGLE", "DFLASH"),
    problems=("transformers: not known, because its METADATA could not be read",),
)
OK_CHECKS = (
    Check("ssh", "ok", "ops@ct129.example, 12 ms"),
    Check("sudo", "ok", "sudo -n works"),
    Check("interpreter", "ok", "/root/ml-env/bin/python3, 3.12.3"),
    Check("CUDA ABI", "ok", "torch 2.11.0+cu130, kernels for cu130, driver 580.159 does 13.0"),
    Check("model readable", "ok", "/models/qwen3.6-27b, as root"),
    Check("port", "ok", "30000 is this unit's own"),
    Check("/dev/shm", "unknown", "not known, because df gave nothing in 2 s"),
    Check("way back", "warn", "linear-wrapper was last ready 41 days ago", "rehearse it when the host is idle"),
)
BAD_CHECK = Check(
    "CUDA ABI",
    "fail",
    "torch 2.11.0+cu128 beside sglang-kernel for cu130: libcudart.so.13 is not among what LD_LIBRARY_PATH resolves",
    "/root/ml-env/bin/python3 -m pip install --index-url https://download.pytorch.org/whl/cu130 torch==2.11.0",
)
MARKS = (
    FlagMark("mem-fraction-static", "ok"),
    FlagMark("context-length", "ok"),
    FlagMark("max-running-requests", "ok"),
    FlagMark(
        "disable-cuda-graph", "ok", "", "0.5.12: stops the decode graph only; the prefill graph is still captured"
    ),
)
BAD_MARKS = (
    *MARKS[:3],
    FlagMark("cuda-graph-max-bs", "ambiguous", "cuda-graph-max-bs-decode", "two options begin so"),
    FlagMark("disable-piecewise-cuda-graph", "removed", "disable-prefill-cuda-graph", "gone since 0.5.20: exit 2"),
    FlagMark("hybrid-kvcache-ratio", "unknown", "", "no option of this build begins so: exit 2"),
)


def estimate(fraction: float = 0.3) -> Estimate:
    """As recorded at 0.3; below a tenth nothing is left for the pool."""
    if fraction < 0.1:
        few = (Term("weights", int(1.18 * GB)), Term("draft", int(0.15 * GB)), Term("free", int(138.5 * GB)))
        return Estimate(
            "does not fit", "kv pool", few, int(139.8 * GB), 0, 126976, 0, 0.01, 0.97, ("mem-fraction-static 0.01",)
        )
    pool = [Term("kv pool", int(34.36 * GB)), Term("draft kv pool", int(6.14 * GB)), Term("graphs", int(1.53 * GB))]
    terms = (Term("weights", int(1.18 * GB)), Term("draft", int(0.15 * GB)), *pool, Term("free", int(96.4 * GB)))
    return Estimate("fits", "", terms, int(139.8 * GB), 321771, 126976, 48, 0.01, 0.97)


def forecast(profile: Profile, marks: tuple[FlagMark, ...] = MARKS) -> tuple[tuple[FlagMark, ...], Estimate]:
    """What changes with the fraction alone."""
    fraction = profile.flags.get("mem-fraction-static", 0.3)
    return marks, estimate(float(fraction))


def preflight(key: str, profile: str, **more: Any) -> Preflight:
    """All well but two things that refuse nothing."""
    return Preflight(key, profile, OK_CHECKS, BUILD, MARKS, estimate(), 1.8, **more)


def failed_preflight(key: str, profile: str) -> Preflight:
    """One check and three flags stand against it."""
    checks = tuple(c for c in OK_CHECKS if c.name != BAD_CHECK.name)
    build = replace(BUILD, release="0.5.23", versions={**BUILD.versions, "sglang": "0.5.23", "torch": "2.11.0+cu128"})
    return replace(preflight(key, profile), checks=(*checks, BAD_CHECK), build=build, marks=BAD_MARKS)


POOL = Finding(
    "kv-budget-too-small",
    "Weights and draft leave no room for a KV pool at mem-fraction-static 0.005.",
    0.97,
    True,
    (Evidence(53, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),),
    (Remedy("Raise mem-fraction-static to at least 0.31.", (Edit("flag", "mem-fraction-static", "raise", 0.31),)),),
    ("a context length that is too long: it does not size the pool",),
    "kv cache",
)
GRAPHS = Finding(
    "graph-capture-failed",
    "The GPU ran out of memory while CUDA graphs were captured.",
    0.95,
    True,
    (
        Evidence(350, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
        Evidence(351, "Exception: Capture CUDA graph failed: CUDA out of memory. [bold]not markup[/]"),
    ),
    (
        Remedy(
            "Lower mem-fraction-static, so that memory is left for the graphs.",
            (Edit("flag", "mem-fraction-static", "lower"),),
        ),
        Remedy(
            "Capture fewer graphs, or none.",
            (
                Edit("flag", "disable-cuda-graph", "set", True),
                Edit("flag", "disable-piecewise-cuda-graph", "set", True),
            ),
        ),
        Remedy("See who else holds memory.", (), "nvidia-smi --query-compute-apps=pid,used_memory --format=csv"),
    ),
    ("a pool that is too small: it was allocated at 22,144 tokens", "the host: dmesg names no Xid"),
    "graphs",
    "mem-fraction-static",
)
TRITON = Finding(
    "triton-compile-failed",
    "ptxas refuses Triton's kernel, now in the prefill graph, which --disable-cuda-graph does not stop.",
    0.9,
    True,
    (Evidence(3120, "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error"),),
    (Remedy("Serve without graphs until Triton works.", (Edit("flag", "disable-piecewise-cuda-graph", "set", True),)),),
)
BADGE = Finding(
    "acceptance-collapsed",
    "Acceptance fell from 3.1 to 1.0 tokens a step an hour ago.",
    0.8,
    False,
    (),
    (Remedy("Start the draft model again.", (), "sudo systemctl restart wrapper.service"),),
)


def attempt(tx: str, target: str, outcome: str, furthest: str, finding: Finding | None, *changed: str) -> HistoryEntry:
    """One line of the story."""
    at = {"t1": 7200.0, "t2": 3600.0, "t3": 1800.0, "t4": 600.0}[tx]
    raw = {"finding": finding.to_json()} if finding is not None else {}
    cause = finding.evidence[0].text if finding is not None and finding.evidence else ""
    return HistoryEntry(
        tx, "deploy", WALL - at, 100.0, "r11", target, "shadow-small", outcome, furthest, cause, "ops@desk", "",
        changed, raw,
    )  # fmt: skip


STORY = (
    attempt(
        "t3", "r14", "went_back", "graphs", TRITON, "flag disable-cuda-graph (unset) -> true",
    ),
    attempt(
        "t2", "r13", "went_back", "graphs", GRAPHS, "flag mem-fraction-static 0.88 -> 0.95",
        "flag context-length 131072 -> 32768", "flag max-running-requests (unset) -> 4",
    ),
    attempt("t1", "r12", "went_back", "kv cache", POOL, "flag context-length 32768 -> 131072"),
    replace(attempt("t4", "r11", "committed", "held", None), started=WALL - 90000),
)  # fmt: skip


def with_finding(finding: Finding) -> ServiceSnapshot:
    """ct129/sglang-qwen after a start that failed with it; nothing serves."""
    lines = [*canned.STARTED[:-1], canned.phase("graphs", "fail", secs=31.0, t=209.0)]
    verdict = {**canned.CRASH, "finding": finding.to_json()}
    end = {"kind": "outcome", "state": "stopped", "detail": "the unit is stopped", "t": 240.0}
    failed = canned.failed_service()
    return replace(failed, tx=canned.tx(*lines, verdict, end))


def going_back(finding: Finding) -> ServiceSnapshot:
    """The trial failed with it; the way back loads."""
    service = canned.starting()
    lines = [{**x, "finding": finding.to_json()} if x is canned.CRASH else x for x in canned.WENT_BACK]
    return replace(service, tx=canned.tx(*lines), lock="")


def snapshots() -> dict[str, FleetSnapshot]:
    """States that only findings bring."""
    host, service = canned.blackwell(), canned.starting()
    assert service.tx is not None
    drifted, wrapper = host.services
    drift = (
        Drift("max-running-requests", "16", "12", why="the state cache holds 12 requests; the build lowers it"),
        Drift("disable-cuda-graph", "true", "captured", True, "0.5.12 still captures the prefill graph"),
    )
    ailing = replace(host, services=(replace(drifted, drift=drift), replace(wrapper, finding=BADGE)))
    stuck = replace(service, tx=replace(service.tx, words="stuck: waits for a lock left by pid 4127"))
    loading = replace(service, tx=replace(service.tx, words="loading, 412 MB/s, about 3 min left"))
    return {
        "found": canned.fleet(canned.a6000(with_finding(GRAPHS)), host),
        "pool": canned.fleet(canned.a6000(with_finding(POOL)), host),
        "ailing": canned.fleet(ailing),
        "going-back": canned.fleet(canned.a6000(going_back(GRAPHS)), host),
        "stuck": canned.fleet(canned.a6000(stuck), host),
        "loading": canned.fleet(canned.a6000(loading), host),
    }


def decisive_journal(finding: Finding) -> list[JournalLine]:
    """The start of `with_finding`, its decisive lines where SGLang writes them: in the scheduler's traceback."""
    before = [x for x in canned.journal(40) if not x.gap and x.priority > 3]
    told = ["[2025-11-29 07:05:31 TP0] Scheduler hit an exception: Traceback (most recent call last):"]
    told += [f"[2025-11-29 07:05:31 TP0] {e.text}" for e in finding.evidence]
    told += ["[2025-11-29 07:05:32] Received sigquit from a child process. It usually means the child failed."]
    texts = enumerate([*(x.text for x in before), *told])
    return [JournalLine(i, WALL + i, "sglang-qwen.service", text, 6, canned.INVOCATION) for i, text in texts]
