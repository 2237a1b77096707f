"""Canned snapshots in every state that the screens must show. Times are fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ddtree_console.domain import events as ev
from ddtree_console.domain.snapshot import (
    Drift,
    FleetSnapshot,
    Gpu,
    GpuProcess,
    GpuReport,
    HostSnapshot,
    HttpState,
    Listener,
    ReleaseState,
    ServiceSnapshot,
    UnitState,
)
from ddtree_console.domain.spec import Fleet, Host, Profile, Secret, Service, Speculative
from ddtree_console.domain.txview import TxView, fold_all
from ddtree_console.services.api import JournalLine

NOW = 1000.0
WALL = 1764400000.0
GIB = 2**30

PROFILES = {
    "ddtree-shadow": Profile(
        "ddtree-shadow",
        python="/root/ml-env/bin/python3",
        model="/models/qwen3.6-27b",
        flags={"mem-fraction-static": 0.88, "context-length": 131072},
        env={"HF_TOKEN": Secret("hf"), "CUDA_HOME": "/usr/local/cuda"},
        speculative=Speculative("ddtree", True, 15, "/models/draft"),
    ),
    "shadow-small": Profile(
        "shadow-small",
        extends="ddtree-shadow",
        python="/root/ml-env/bin/python3",
        model="/models/qwen3.6-27b",
        flags={"mem-fraction-static": 0.95, "context-length": 32768, "max-running-requests": 4},
        env={"HF_TOKEN": Secret("hf"), "CUDA_HOME": "/usr/local/cuda"},
        speculative=Speculative("ddtree", True, 15, "/models/draft"),
    ),
    "linear-wrapper": Profile("linear-wrapper", engine="wrapper", model="/models/qwen3.6-27b"),
}


def _slot(host: str, name: str, port: int, gpus: tuple[int, ...], profile: str) -> Service:
    return Service(host, name, f"{name}.service", port, gpus, profile, fallback="linear-wrapper")


FLEET = Fleet(
    "profiles/fleet.yaml",
    (
        Host("ct129", "ct129.example", services=(_slot("ct129", "sglang-qwen", 30000, (0, 1), "ddtree-shadow"),)),
        Host("ct130", "ct130.example", services=(_slot("ct130", "sglang-qwen", 30000, (0,), "ddtree-shadow"),)),
        Host(
            "ct200",
            "ct200.example",
            services=(
                _slot("ct200", "sglang-dflash", 30001, (1,), "dflash-smoke"),
                _slot("ct200", "wrapper", 30000, (0,), "linear-wrapper"),
            ),
        ),
    ),
    PROFILES,
)


def gpu(index: int, used: float, total: int, name: str, **more: Any) -> Gpu:
    """A device; sizes in GiB."""
    return Gpu(
        index,
        name,
        total=total * GIB,
        used=int(used * GIB),
        free=int((total - used) * GIB),
        util=more.pop("util", 7),
        temp=more.pop("temp", 51),
        power=more.pop("power", 92.0),
        power_limit=300.0,
        **more,
    )


def unit(name: str, invocation: str = "5b7a" + "0" * 28, **more: Any) -> UnitState:
    """An active unit unless said otherwise."""
    base = UnitState(
        f"{name}.service",
        load="loaded",
        active="active",
        sub="running",
        result="success",
        invocation=invocation,
        main_pid=4242,
        since=WALL - 3600,
        fragment=f"/etc/systemd/system/{name}.service",
        enabled="enabled",
        memory=9 * GIB,
    )
    return replace(base, **more)


def tx(*lines: dict[str, Any], t: float = 0.0) -> TxView:
    """A transaction from event data; each line may give its own boottime `t`."""
    stream, at = [], 100.0
    for n, line in enumerate(lines):
        data = dict(line)
        at = float(data.pop("t", at))
        stream.append(ev.Event("20251129-070000-ab12", n, "boot", at, WALL, str(data.pop("kind")), data))
    view = fold_all(stream)
    assert view is not None
    return replace(view, t=t or view.t)


BEGIN: dict[str, Any] = {
    "kind": "begin",
    "what": "deploy",
    "unit": "sglang-qwen.service",
    "service": "sglang-qwen",
    "who": "ops@desk",
    "source": "r11",
    "target": "r12",
    "profile": "shadow-small",
    "on_failure": "back",
    "deadline": 700.0,
    "hold": 20.0,
    "t": 100.0,
}


def step(name: str, state: str = "ok", **more: Any) -> dict[str, Any]:
    """A step event."""
    return {"kind": "step", "step": name, "state": state, **more}


def phase(name: str, state: str = "ok", **more: Any) -> dict[str, Any]:
    """A phase event."""
    return {"kind": "phase", "phase": name, "state": state, **more}


def rung(name: str, state: str = "ok", **more: Any) -> dict[str, Any]:
    """A rung event."""
    return {"kind": "rung", "rung": name, "state": state, **more}


INVOCATION = "5b7a" + "0" * 28
STARTED = (
    BEGIN,
    step("lock", secs=0.1),
    step("verify", secs=0.4),
    step("keep", secs=0.1),
    step("stop", secs=3.9),
    step("free", secs=0.3),
    step("start", secs=0.2, invocation=INVOCATION, t=105.0),
    step("wait", "run", t=105.0),
    rung("invocation", secs=0.1, last_good=0.1),
    rung("process", secs=2.0, last_good=2.0, t=107.0),
    rung("listener", "run", last_good=128.0, t=107.0),
    phase("weights", "run", last_good=70.0, t=110.0),
    phase("weights", "ok", secs=68.0, t=173.0),
    phase("kv cache", "ok", secs=4.0, last_good=4.0, detail="22,144 tokens"),
    phase("graphs", "run", last_good=48.0, done=0, total=23, t=178.0),
    phase("graphs", "run", done=14, total=23, detail="bs 8", t=200.0),
    {"kind": "progress", "moved": ["log"], "deadline": 700.0, "t": 208.0},
)
CRASH = {
    "kind": "verdict",
    "ok": False,
    "code": "fatal-log",
    "cause": "Capture CUDA graph failed: CUDA out of memory. Tried to allocate 2.00 GiB [GPU 0]",
    "remedy": "lower mem-fraction-static, or set disable-cuda-graph",
    "evidence": [
        "Traceback (most recent call last):",
        '  File "/root/ml-env/lib/python3.12/site-packages/sglang/srt/model_executor/cuda_graph_runner.py", line 350',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "Exception: Capture CUDA graph failed: CUDA out of memory. [bold]not markup[/]",
    ],
    "exit": {"result": "exit-code", "code": 1, "status": 1, "restarts": 0},
    "t": 209.0,
}
WENT_BACK = (
    *STARTED[:-1],
    phase("graphs", "fail", secs=31.0, t=209.0),
    CRASH,
    {"kind": "back", "target": "linear-wrapper", "profile": "linear-wrapper", "why": "r11 did not serve", "t": 212.0},
    step("stop", secs=0.4),
    step("start", secs=0.2, invocation="77aa" + "0" * 28, t=214.0),
    step("wait", "run", t=214.0),
    rung("invocation", secs=0.1),
    rung("process", secs=2.0),
    phase("weights", "run", last_good=40.0, t=216.0),
)
DONE = (
    *STARTED[:-1],
    phase("graphs", "ok", secs=46.0, t=224.0),
    rung("listener", secs=121.0),
    rung("info", secs=0.4, last_good=0.5),
    rung("token", secs=1.1, last_good=1.0),
    rung("held", secs=20.0, last_good=20.0, t=248.0),
    step("wait", secs=123.0),
    step("hold", secs=20.0),
    step("commit", secs=0.2),
    {
        "kind": "outcome",
        "state": "committed",
        "release": "r12",
        "serves": "qwen3.6-27b (sglang) on port 30000",
        "detail": "r12 is committed",
        "exit_code": 0,
        "t": 249.0,
    },
)


def ready(key: str, name: str, release: str, profile: str, tok: float, accept: float) -> ServiceSnapshot:
    """A service that was proved by its own transaction."""
    mine = {"target": release, "profile": profile, "service": name}
    return ServiceSnapshot(
        key,
        unit=unit(name, INVOCATION),
        listener=Listener("ours", "0.0.0.0:30000", 4242, "python3"),
        http=HttpState(
            "/model_info",
            200,
            seconds=0.004,
            via="channel",
            served_model="qwen3.6-27b",
            running=2,
            waiting=0,
            tok_s=tok,
            accept_len=accept,
            source="metrics",
        ),
        release=ReleaseState(release, profile, release, way_back="linear-wrapper", previous="r6"),
        tx=tx({**BEGIN, **mine}, *DONE[1:]),
        at=NOW - 1,
    )


def starting(key: str = "ct129/sglang-qwen", lines: Sequence[dict[str, Any]] = STARTED) -> ServiceSnapshot:
    """In the middle of a deployment."""
    return ServiceSnapshot(
        key,
        unit=unit("sglang-qwen", INVOCATION, since=WALL - 103),
        listener=Listener("nobody"),
        http=HttpState("/model_info", None, "connection refused"),
        release=ReleaseState("r11", "ddtree-shadow", "r11", "r12", "linear-wrapper", previous="r10"),
        tx=tx(*lines),
        lock="ops@desk from 192.0.2.7 · deploy r12 · since 1:48",
        at=NOW - 1,
    )


def a6000(*services: ServiceSnapshot, **more: Any) -> HostSnapshot:
    """ct129."""
    busy = (GpuProcess(4242, int(43.6 * GIB), "root", "python3 [sglang::scheduler]", "sglang-qwen.service"),)
    gpus = (
        gpu(0, 44.1, 48, "NVIDIA RTX A6000", processes=busy, util=96, temp=74, power=271.0),
        gpu(1, 43.8, 48, "NVIDIA RTX A6000", processes=busy, util=94, temp=88, power=280.0),
    )
    base = HostSnapshot(
        "ct129",
        "up",
        python="3.11.2",
        systemd="252",
        gpus=GpuReport("nvml", "580.65.06", gpus),
        services=services or (starting(),),
        at=NOW - 1,
        latency=0.012,
    )
    return replace(base, **more)


def away() -> HostSnapshot:
    """ct130: never answered."""
    return HostSnapshot(
        "ct130",
        "down",
        "ct130: connect: timed out after 5 s; check that the host is up",
        attempt=3,
        retry_at=NOW + 8,
        services=(ServiceSnapshot("ct130/sglang-qwen", at=NOW - 14),),
        at=NOW - 14,
    )


def blackwell(**more: Any) -> HostSnapshot:
    """ct200: two ready services, one of them drifted."""
    drifted = replace(
        ready("ct200/sglang-dflash", "sglang-dflash", "r43", "dflash-smoke", 842.0, 1.0),
        drift=(Drift("max-running-requests", "16", "12"),),
    )
    wrapper = ready("ct200/wrapper", "wrapper", "r7", "linear-wrapper", 171.0, 3.1)
    name = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    gpus = (
        gpu(0, 38.0, 96, name, util=61, temp=64, power=290.0),
        gpu(1, 71.2, 96, name, util=88, temp=70, power=410.0),
        *(gpu(i, 0.4, 96, name, util=0, temp=31, power=14.0) for i in range(2, 8)),
    )
    base = HostSnapshot(
        "ct200",
        "up",
        gpus=GpuReport("nvml", "580.65.06", gpus),
        services=(drifted, wrapper),
        at=NOW - 1,
        latency=0.02,
    )
    return replace(base, **more)


def fleet(*hosts: HostSnapshot, serial: int = 1) -> FleetSnapshot:
    """All three hosts unless given."""
    return FleetSnapshot(serial, NOW, hosts or (a6000(), away(), blackwell()))


def failed_service() -> ServiceSnapshot:
    """The trial failed and so did everything else."""
    end = {
        "kind": "outcome",
        "state": "nothing_serves",
        "detail": "unit stopped; nothing more without a person",
        "t": 260.0,
    }
    return replace(
        starting(lines=(*WENT_BACK[:10], phase("graphs", "fail", secs=31.0), CRASH, end)),
        unit=unit(
            "sglang-qwen", active="failed", sub="failed", result="exit-code", exit_code=1, exit_status=1, main_pid=0
        ),
        lock="",
    )


def snapshots() -> dict[str, FleetSnapshot]:
    """Every state by name."""
    going_back = replace(starting(lines=WENT_BACK), lock="")
    committed = replace(ready("ct129/sglang-qwen", "sglang-qwen", "r12", "shadow-small", 212.0, 3.4), tx=tx(*DONE))
    locked = replace(committed, lock="eve@laptop from 192.0.2.9 · rollback · since 0:12", tx=None)
    stale = tuple(
        replace(h, at=NOW - 95, services=tuple(replace(s, at=NOW - 95) for s in h.services)) for h in (blackwell(),)
    )
    refused = HostSnapshot(
        "ct130",
        "refused",
        "ct130: host key changed, now SHA256:Yd3mfS2kY0 (ed25519); in another shell: ssh-keygen -R ct130.example",
        services=(ServiceSnapshot("ct130/sglang-qwen"),),
    )
    lost = (
        replace(gpu(0, 0, 48, "NVIDIA RTX A6000"), fault="GPU is lost: reboot the host"),
        gpu(1, 0.3, 48, "NVIDIA RTX A6000"),
    )
    return {
        "starting": fleet(),
        "empty": FleetSnapshot(1, NOW, ()),
        "error": fleet(a6000(failed_service(), gpus=GpuReport("nvml", "580.65.06", lost)), refused, blackwell()),
        "stale": fleet(*stale),
        "failed": fleet(a6000(failed_service()), away(), blackwell()),
        "ready": fleet(a6000(committed), blackwell()),
        "drift": fleet(blackwell()),
        "locked": fleet(a6000(locked), blackwell()),
        "back": fleet(a6000(going_back), blackwell()),
        "no-gpu": fleet(a6000(committed, gpus=GpuReport(fault="NVML cannot load: libnvidia-ml.so.1 not found"))),
    }


def journal(count: int = 60, start: int = 0) -> list[JournalLine]:
    """Lines as SGLang writes them."""
    out = []
    for seq in range(start, start + count):
        text = f"[2025-11-29 07:0{seq % 6}:{seq % 60:02} TP0] Capturing batches (bs={seq % 24}): {seq % 24}/23"
        priority = 6
        if seq % 17 == 5:
            text, priority = f"WARNING: [TP0] attention backend not tuned for sm_{80 + seq % 10}", 4
        if seq % 23 == 11:
            text, priority = "RuntimeError: [bold]not markup[/] Not enough memory. Please try --mem-fraction-static", 3
        gap = "the journal was vacuumed here" if seq == 30 else ""
        out.append(JournalLine(seq, WALL + seq, "sglang-qwen.service", "" if gap else text, priority, INVOCATION, gap))
    return out
