"""Judges the CUDA side of an environment: torch against kernels, libraries, driver and GPUs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddtree_console.hostside.check_finding import Finding
from ddtree_console.hostside.env_cuda import AT_START, Cuda, Kernel, Missing

# The first driver branch that runs a CUDA major, from NVIDIA's CUDA compatibility table.
LEAST_DRIVER = {11: 450, 12: 525, 13: 580}
# Compute capability by what a GPU is called, for a driver that cannot be asked for it.
_NAMES = (
    (r"B200|GB200", 100), (r"B300|GB300", 103), (r"RTX PRO|RTX 50\d0", 120), (r"H100|H200|H20|GH200", 90),
    (r"L40|L4\b|RTX 40\d0|Ada", 89), (r"A6000|A5000|A4000|A40\b|A10\b|A16\b|A2\b|RTX 30\d0", 86), (r"A100|A30\b", 80),
    (r"T4\b|RTX 20\d0", 75), (r"V100", 70),
)  # fmt: skip


def capability(text: str, name: str) -> int | None:
    """90 for compute capability 9.0, from the driver's word or the GPU's name; None where neither says."""
    match = re.fullmatch(r"(\d+)\.(\d+)", text)
    if match:
        return int(match[1]) * 10 + int(match[2])
    return next((arch for pattern, arch in _NAMES if re.search(pattern, name)), None)


def major(cuda: str) -> int | None:
    """12 for 12.8; None for ''."""
    head = cuda.partition(".")[0]
    return int(head) if head.isdigit() else None


def _add_path(missing: Sequence[Missing], env: Mapping[str, str]) -> str:
    """The remedy where every missing library lies somewhere already; '' otherwise."""
    if not missing or not all(one.elsewhere for one in missing):
        return ""
    folders = dict.fromkeys(str(Path(one.elsewhere).parent) for one in missing)
    had = env.get("LD_LIBRARY_PATH", "")
    return f"set env LD_LIBRARY_PATH to {':'.join([*folders, *([had] if had else [])])}"


def _install(cuda: Cuda, kernel: Kernel) -> str:
    wanted, built = cuda.cuda, kernel.cuda
    if wanted and built and major(wanted) != major(built):
        return f"install {kernel.package} built for CUDA {wanted}, or torch for CUDA {built}"
    return f"install what {kernel.missing[0].name} belongs to" if kernel.missing else f"install {kernel.package} again"


def _kernel(name: str, both: str, cuda: Cuda, env: Mapping[str, str], kernel: Kernel) -> Finding | None:
    """What is wrong with one kernel wheel beside this torch; None for nothing."""
    state = "fail" if kernel.package in AT_START else "warn"
    differs = None not in (major(kernel.cuda), major(cuda.cuda)) and major(kernel.cuda) != major(cuda.cuda)
    if kernel.missing:
        lost = ", ".join(dict.fromkeys(m.name for m in kernel.missing))
        why = f"{both}: {kernel.package} needs {lost}, and nothing provides it"
        return Finding(name, state, why, _add_path(kernel.missing, env) or _install(cuda, kernel))
    if kernel.problem:
        return Finding(name, state, f"{both}: {kernel.package}: {kernel.problem}", _install(cuda, kernel))
    if differs:
        why = f"{both}: two CUDA runtimes in one process; each finds its own"
        return Finding(name, "warn", why, _install(cuda, kernel))
    return None


def abi(cuda: Cuda, env: Mapping[str, str], used: Sequence[Kernel]) -> Finding:
    """torch's CUDA against that of the kernels, and whether each gets the libraries that it was linked with."""
    name = "cuda abi"
    said = f"torch {cuda.torch} (CUDA {cuda.cuda or 'none'})" if cuda.torch else "no torch"
    built = ", ".join(dict.fromkeys(f"{k.package} {k.version} (CUDA {k.cuda or '?'})" for k in used))
    both = f"{said}, {built}" if built else said
    if not cuda.torch:
        return Finding(name, "unknown", "not known, because torch is not installed there")
    if not cuda.cuda:
        return Finding(name, "fail", f"{said}: a build for the CPU", "install torch for this host's CUDA")
    if cuda.torch_missing:
        lost = ", ".join(m.name for m in cuda.torch_missing)
        remedy = _add_path(cuda.torch_missing, env) or f"install torch {cuda.torch} again with what it requires"
        return Finding(name, "fail", f"{both}: torch needs {lost}, and nothing provides it", remedy)
    worst: Finding | None = None
    for kernel in used:
        found = _kernel(name, both, cuda, env, kernel)
        if found is not None and (worst is None or (found.state, worst.state) == ("fail", "warn")):
            worst = found
    if worst is not None:
        return worst
    if not used:
        return Finding(name, "ok", f"{said}, no kernel wheel")
    return Finding(name, "ok", both)


def libraries(cuda: Cuda) -> Finding | None:
    """Which CUDA libraries the process would load; a warning where LD_LIBRARY_PATH gives torch an older one."""
    if not cuda.libraries:
        return None
    shown = dict.fromkeys(f"{lib.name} {lib.path} ({lib.how})" for lib in cuda.libraries)
    wanted = tuple(int(x) for x in cuda.cuda.split(".")[:2]) if cuda.cuda else ()
    for lib in cuda.libraries:
        match = re.search(r"libcudart\.so\.(\d+)\.(\d+)", Path(lib.path).resolve().name)
        if lib.how == "LD_LIBRARY_PATH" and match and len(wanted) == 2:
            got = (int(match[1]), int(match[2]))
            if got[0] == wanted[0] and got < wanted:
                why = f"{lib.path} is CUDA {got[0]}.{got[1]}, torch was built for {cuda.cuda}; LD_LIBRARY_PATH has it"
                return Finding("cuda libraries", "warn", why, f"take {Path(lib.path).parent} out of LD_LIBRARY_PATH")
    return Finding("cuda libraries", "ok", "; ".join(shown))


def driver(cuda: Cuda, version: str, supports: str) -> Finding | None:
    """The driver against the CUDA that torch was built for. supports: the driver's own CUDA version, '' where not
    told."""
    wanted = major(cuda.cuda)
    if wanted is None:
        return None
    if not version and not supports:
        return Finding("driver", "unknown", "not known, because no driver answers")
    branch = version.partition(".")[0]
    has = major(supports)
    enough = has >= wanted if has is not None else not branch.isdigit() or int(branch) >= LEAST_DRIVER.get(wanted, 0)
    can = f"driver {version}" + (f" (CUDA {supports})" if supports else "")
    if enough:
        return Finding("driver", "ok", f"{can} runs torch's CUDA {cuda.cuda}")
    least = LEAST_DRIVER.get(wanted)
    remedy = f"update the driver to {least} or newer, or install torch for CUDA {has or 'an older major'}"
    return Finding("driver", "fail", f"{can} is too old for torch's CUDA {cuda.cuda}", remedy)


def chosen(cuda: Cuda, archs: Sequence[int]) -> list[Kernel]:
    """The kernels that a start on those GPUs loads: of folders by architecture, sm90 for 9.0 and sm100 for the rest."""
    wanted = {"sm90" if arch == 90 else "sm100" for arch in archs} or {"sm90", "sm100"}
    have = {kernel.variant for kernel in cuda.kernels}
    return [k for k in cuda.kernels if not k.variant or k.variant in wanted or not wanted & have]


def runs(arch: int, kernel: Kernel) -> bool:
    """Whether the library has machine code for that GPU (same major, minor not above), or PTX to make it from."""
    return any(s // 10 == arch // 10 and s <= arch for s in kernel.sass) or any(p <= arch for p in kernel.ptx)


def architecture(archs: Sequence[int | None], used: Sequence[Kernel]) -> Finding | None:
    """The GPUs against the architectures in the kernel wheel; None where there is no kernel wheel."""
    name = "gpu architecture"
    loaded = [k for k in used if k.package in AT_START and k.library]
    if not loaded:
        return None
    known = sorted({arch for arch in archs if arch is not None})
    if not known:
        return Finding(name, "unknown", "not known, because no GPU tells its compute capability")
    for kernel in loaded:
        if not kernel.sass and not kernel.ptx:
            return Finding(name, "unknown", f"not known, because {kernel.library} names no architecture")
        have = ", ".join([f"sm_{s}" for s in kernel.sass] + [f"compute_{p}" for p in kernel.ptx])
        for arch in known:
            if not runs(arch, kernel):
                why = f"GPU is sm_{arch}; {kernel.package} {kernel.version} has code for {have} only"
                return Finding(name, "fail", why, f"install a {kernel.package} that has sm_{arch}: no kernel, and no "
                               "graph of one, can run with this one")  # fmt: skip
    have = ", ".join(f"sm_{s}" for s in loaded[0].sass)
    return Finding(name, "ok", f"{', '.join(f'sm_{a}' for a in known)} is served by {loaded[0].package} ({have})")


def judge(
    cuda: Cuda,
    env: Mapping[str, str],
    archs: Sequence[int | None],
    version: str,
    supports: str,
) -> list[Finding]:
    """All findings. archs: of the slot's GPUs. version, supports: of the driver."""
    if not cuda.torch and not cuda.kernels:
        return []
    used = chosen(cuda, [arch for arch in archs if arch is not None])
    found = [abi(cuda, env, used), libraries(cuda), driver(cuda, version, supports), architecture(archs, used)]
    said = [one for one in found if one is not None]
    return [*said, *(Finding("cuda libraries", "unknown", f"not known, because {why}") for why in cuda.problems)]
