"""`python -m ddtree_kernels.bench.tune_attention`: every variant of tree_attention's kernels checked, then timed.

Each variant runs in a process of its own, which is ended when it says nothing for QUIET_S (a kernel that never ends
must not hold the machine); checks run side by side, times one after the other.
"""

from __future__ import annotations

import argparse
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

from ddtree_kernels.bench.tune_cases import VARIANTS

QUIET_S = 40.0
SECTIONS = ("SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "SchedulerStats", "WarpStateStats")
METRICS = (
    "regex:sm__inst_executed_pipe_tensor.*avg.pct.*,regex:smsp__average_warps_issue_stalled.*_per_issue_active,"
    "regex:l1tex__data_bank_(reads|writes).avg.pct_of_peak_sustained_elapsed,"
    "dram__bytes_read.sum,lts__t_bytes.sum,sm__cycles_active.avg,gpu__time_duration.sum"
)
PROFILED = ((32768, 65), (32768, 17))  # context, nodes


@dataclass
class Child:
    """A process, the lines it has said and when it last said one."""

    process: subprocess.Popen[bytes]
    lines: list[str] = field(default_factory=list)
    rest: bytes = b""
    heard: float = field(default_factory=time.monotonic)
    verdict: str = ""


def start(*words: str) -> Child:
    """A child of tune_cases in a session of its own."""
    command = [sys.executable, "-m", "ddtree_kernels.bench.tune_cases", *words]
    return Child(
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, bufsize=0)
    )


def follow(children: dict[str, Child], show: bool = False) -> None:
    """Reads all children until they end, or ends those that are quiet for too long; fills in their verdicts."""
    reader = selectors.DefaultSelector()
    for name, child in children.items():
        assert child.process.stdout is not None
        reader.register(child.process.stdout, selectors.EVENT_READ, name)
    while reader.get_map():
        for key, _ in reader.select(timeout=1.0):
            child = children[key.data]
            data = os.read(key.fd, 65536)
            child.heard = time.monotonic()
            if not data:
                reader.unregister(key.fileobj)
                code = child.process.wait()
                last = child.lines[-1] if child.lines else "said nothing"
                child.verdict = child.verdict or ("ok" if code == 0 else f"exit {code}: {last[:200]}")
                continue
            *whole, child.rest = (child.rest + data).split(b"\n")
            child.lines += [line.decode(errors="replace") for line in whole]
            if show:
                for line in whole:
                    print(line.decode(errors="replace"), flush=True)
        for child in children.values():
            if child.process.poll() is None and time.monotonic() - child.heard > QUIET_S:
                child.verdict = f"ended after {QUIET_S:.0f} s of silence: {child.lines[-1:]}"
                os.killpg(child.process.pid, signal.SIGKILL)


def table(lines: list[str]) -> list[str]:
    """The best of each variant and shape, with the splits that gave it, and the launch's own choice of splits."""
    best: dict[tuple[int, int, int, str], tuple[float, str, str]] = {}
    own: dict[tuple[int, int, int, str], float] = {}
    for line in lines:
        if not line.startswith("time "):
            continue
        _, name, context, nodes, heads, splits, us, times = line.split()
        key = (int(heads), int(context), int(nodes), name)
        best[key] = min(best.get(key, (float("inf"), "", "")), (float(us), splits, times))
        if splits == "None":
            own[key] = min(own.get(key, float("inf")), float(us))
    return [
        f"{key[0]:3d} heads {key[1]:7d} T {key[2]:3d} {key[3]:14s} own {own[key]:8.2f}"
        f"  best {us:8.2f} us ({times} floors) at splits {splits}"
        for key, (us, splits, times) in sorted(best.items())
    ]


def counters(name: str) -> None:
    """Nsight Compute's sections for one launch of each profiled shape."""
    tool = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    for context, nodes in PROFILED:
        command = [tool, "--clock-control", "none", "--kernel-name", "regex:split_kernel", "--launch-skip", "1"]
        command += ["--launch-count", "1", "--metrics", METRICS]
        command += [word for section in SECTIONS for word in ("--section", section)]
        command += [sys.executable, "-m", "ddtree_kernels.bench.tune_cases", "once", name, str(context), str(nodes)]
        print("counters:", " ".join(command), flush=True)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=QUIET_S, check=False)
            print(done.stdout[-9000:], done.stderr[-500:], flush=True)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"no counters: {error}", flush=True)


def main() -> int:
    """Prints verdicts, times and a table; 1 if a variant was wrong."""
    parser = argparse.ArgumentParser(prog="python -m ddtree_kernels.bench.tune_attention", description=__doc__)
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--counters", metavar="VARIANT", choices=list(VARIANTS), help="also run ncu on this one")
    options = parser.parse_args()
    begun = time.monotonic()
    checks = {name: start("check", name) for name in options.variants}
    follow(checks)
    for name, child in checks.items():
        print(f"check {name}: {child.verdict}", flush=True)
        if child.verdict != "ok":
            print("\n".join(child.lines[-12:]), flush=True)
    print(f"checked in {time.monotonic() - begun:.0f} s", flush=True)
    right = [name for name, child in checks.items() if child.verdict == "ok"]
    lines: list[str] = []
    if right:
        timed = start("time", *right)
        follow({"time": timed}, show=True)
        lines = timed.lines
        print(f"times: {timed.verdict}", flush=True)
    print("\n".join(table(lines)), flush=True)
    if options.counters in right:
        counters(options.counters)
    print(f"{time.monotonic() - begun:.0f} s in all", flush=True)
    return int(len(right) < len(options.variants))


if __name__ == "__main__":
    sys.exit(main())
