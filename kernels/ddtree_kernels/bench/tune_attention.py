"""`python -m ddtree_kernels.bench.tune_attention`: every variant of tree_attention's kernels checked, then timed.

Each variant runs in a process of its own, which is ended when it says nothing for QUIET_S (a kernel that never ends
must not hold the machine); checks run side by side, times one after the other. With --sweep also block shapes.
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
    "regex:smsp__average_warps_issue_stalled.*_per_issue_active,dram__bytes_read.sum,lts__t_bytes.sum,"
    "sm__cycles_active.avg,smsp__inst_executed.sum"
)
FROM_L2 = "l1tex__m_xbar2l1tex_read_bytes.sum"  # asked for apart: not every ncu knows it
# of ncu's lines those that hold one of these are kept
KEPT = (
    "Duration", "DRAM Throughput", "SM Busy", "Issue Slots Busy", "Elapsed Cycles", "Warp Cycles Per Issued", "L2 Hit",
    "Spilling Requests", "is the highest-utilized pipeline", "dram__bytes_read", "lts__t_bytes", "cycles_active.avg",
    "inst_executed", "xbar2l1tex", "Failed", "ERROR",
)  # fmt: skip
WORKERS = max(1, min(12, (os.cpu_count() or 1) - 3))  # side by side with the variants' checks
PROFILED = ((32768, 65), (32768, 17))  # context, nodes


@dataclass
class Child:
    """A process, the lines it has said and when it last said one."""

    process: subprocess.Popen[bytes]
    lines: list[str] = field(default_factory=list)
    rest: bytes = b""
    heard: float = field(default_factory=time.monotonic)
    verdict: str = ""


def start(*words: str, module: str = "tune_cases", told: str = "") -> Child:
    """A child of a module of this package, in a session of its own, with `told` on its standard input."""
    command = [sys.executable, "-m", f"ddtree_kernels.bench.{module}", *words]
    piped = subprocess.PIPE
    child = subprocess.Popen(
        command, stdin=piped, stdout=piped, stderr=subprocess.STDOUT, start_new_session=True, bufsize=0
    )
    assert child.stdin is not None
    with child.stdin:
        child.stdin.write(told.encode())
    return Child(child)


def follow(children: dict[str, Child], show: tuple[str, ...] = ()) -> None:
    """Reads all children until they end, or ends those that are quiet for too long; fills in their verdicts.

    show: beginnings of lines that are printed as they come.
    """
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
            for line in child.lines[-len(whole) :] if whole else ():
                if line.startswith(show):
                    print(line, flush=True)
        for child in children.values():
            if child.process.poll() is None and time.monotonic() - child.heard > QUIET_S:
                child.verdict = f"ended after {QUIET_S:.0f} s of silence: {child.lines[-1:]}"
                os.killpg(child.process.pid, signal.SIGKILL)


def table(lines: list[str]) -> list[str]:
    """A line a shape: microseconds of every variant's passes, and how many floors the best is."""
    found: dict[tuple[int, int, int, str], dict[str, list[tuple[float, float]]]] = {}
    for line in lines:
        if line.startswith("time "):
            _, name, context, nodes, heads, splits, us, floors = line.split()
            key = (int(heads), int(context), int(nodes), splits)
            found.setdefault(key, {}).setdefault(name, []).append((float(us), float(floors)))
    return [
        f"{heads:3d} heads {context:7d} T {nodes:3d} splits {splits}: "
        + ", ".join(f"{name} {' '.join(f'{us:.2f}' for us, _ in passes)}" for name, passes in variants.items())
        + f"; best {min(floors for passes in variants.values() for _, floors in passes):.2f} floors"
        for (heads, context, nodes, splits), variants in sorted(found.items())
    ]


def kept(output: str) -> list[str]:
    """The lines of ncu's output that count, blanks squeezed; of the stalls the ratios, unless they are nothing."""
    lines = [" ".join(line.split()) for line in output.splitlines()]
    stalls = [line for line in lines if "issue_stalled" in line and ".ratio" in line]
    said = [line.split("issue_stalled_")[1] for line in stalls if not line.endswith((" 0", " 0.00"))]
    return [line for line in lines if any(word in line for word in KEPT)] + [
        "stalls: " + ", ".join(f"{line.split('_per_issue')[0]} {line.split()[-1]}" for line in said)
    ]


def counters(name: str, context: int, nodes: int) -> None:
    """Nsight Compute's figures for one launch of a variant."""
    tool = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    for metrics in (f"{METRICS},{FROM_L2}", METRICS):
        command = [tool, "--clock-control", "none", "--kernel-name", "regex:split_kernel", "--launch-skip", "1"]
        command += ["--launch-count", "1", "--metrics", metrics]
        command += [word for section in SECTIONS for word in ("--section", section)]
        command += [sys.executable, "-m", "ddtree_kernels.bench.tune_cases", "once", name, str(context), str(nodes)]
        print(f"counters of {name} at {context}, T {nodes}:", flush=True)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=QUIET_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"no counters: {error}", flush=True)
            return
        print("\n".join(f"  {line}" for line in kept(done.stdout + done.stderr)), flush=True)
        if "Duration" in done.stdout:
            return
        print(done.stdout[-600:], flush=True)


def main() -> int:
    """Prints verdicts, times and a table; 1 if a variant was wrong."""
    parser = argparse.ArgumentParser(prog="python -m ddtree_kernels.bench.tune_attention", description=__doc__)
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--counters", nargs="+", default=[], choices=list(VARIANTS), help="also run ncu on these")
    parser.add_argument("--sweep", action="store_true", help="also sweep the block shapes of Triton's kernel")
    options = parser.parse_args()
    begun = time.monotonic()
    checks = {name: start("check", name) for name in options.variants}
    workers = {
        f"sweep {i}": start("compile", str(i), str(WORKERS), module="tune_sweep")
        for i in range(WORKERS if options.sweep else 0)
    }
    follow(checks | workers)
    for name, child in (checks | workers).items():
        if child.verdict != "ok" or name in checks:
            print(f"check {name}: {child.verdict}", flush=True)
        if child.verdict != "ok":
            print("\n".join(child.lines[-12:]), flush=True)
    print(f"checked in {time.monotonic() - begun:.0f} s", flush=True)
    right = [name for name, child in checks.items() if child.verdict == "ok"]
    if right:
        timed = start("time", *right)
        follow({"time": timed})
        print("\n".join(table(timed.lines)), flush=True)
        print(f"times: {timed.verdict}, {time.monotonic() - begun:.0f} s", flush=True)
    for name in options.counters:
        for context, nodes in PROFILED if name in right else ():
            counters(name, context, nodes)
    if options.sweep:
        tried = [line for child in workers.values() for line in child.lines]
        print("\n".join(line for line in tried if line.startswith("wrong")), flush=True)
        swept = start("time", module="tune_sweep", told="\n".join(tried))
        follow({"sweep": swept}, show=("sweep ", "best "))
        print(f"sweep: {swept.verdict}", flush=True)
    print(f"{time.monotonic() - begun:.0f} s in all", flush=True)
    return int(len(right) < len(options.variants))


if __name__ == "__main__":
    sys.exit(main())
