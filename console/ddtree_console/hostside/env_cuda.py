"""What torch and the kernel wheels of an environment are built for, and which CUDA libraries they would really get."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ddtree_console.hostside import env_elf, env_libs, env_packages
from ddtree_console.hostside.env_packages import Package

KERNELS: Mapping[str, tuple[str, ...]] = {
    "sgl-kernel": ("sgl_kernel/*/common_ops*.so", "sgl_kernel/common_ops*.so"),
    "sglang-kernel": ("sgl_kernel/*/common_ops*.so", "sgl_kernel/common_ops*.so"),
    "flash-attn": ("flash_attn_2_cuda*.so",),
    "flashinfer-jit-cache": ("flashinfer_jit_cache/jit_cache/*/*.so",),
}
"""distribution -> its libraries that a start loads (of flashinfer's many, one stands for all)"""
AT_START = ("sgl-kernel", "sglang-kernel")
CUDA = ("libcudart.so", "libnvrtc.so", "libcudnn.so", "libcublas.so", "libcublasLt.so", "libnvJitLink.so")
SHOWN = ("libcudart.so", "libnvrtc.so", "libcudnn.so")
DRIVER = ("libcuda.so", "libnvidia-ml.so")


@dataclass(frozen=True)
class Missing:
    """A library that nothing provides. elsewhere: where a file of that name lies all the same, '' for nowhere."""

    name: str
    by: str
    elsewhere: str = ""


@dataclass(frozen=True)
class Kernel:
    """A kernel wheel. cuda: `12.8`, `12` (only the major is known) or ''. variant: the folder that a GPU chooses
    (sm90, sm100), '' for the one that all use."""

    package: str
    version: str
    cuda: str
    library: str = ""
    variant: str = ""
    missing: tuple[Missing, ...] = ()
    sass: tuple[int, ...] = ()
    ptx: tuple[int, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Cuda:
    """torch: its version, '' where it is not installed. cuda: what it was built for. libraries: as found, in order."""

    torch: str = ""
    cuda: str = ""
    torch_missing: tuple[Missing, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    libraries: tuple[env_libs.Found, ...] = ()
    problems: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


def of_tag(version: str) -> str:
    """The CUDA version in a local tag: +cu128 -> 12.8, +cu130 -> 13.0, +cu12 -> 12; '' without."""
    match = re.search(r"\+(?:.*\.)?cu(\d{2,4})", version)
    if not match:
        return ""
    digits = match[1]
    return digits if len(digits) == 2 else f"{digits[:2]}.{digits[2:]}"


def of_needs(package: Package) -> str:
    """The CUDA version in what a distribution requires: nvidia-cuda-runtime(-cu12)==12.8.90 -> 12.8; '' without."""
    for need in env_packages.needs(package):
        if need.name.startswith("nvidia-cuda-runtime"):
            numbers = env_packages.numbers(need.pin.lstrip("=~>< "))
            if len(numbers) >= 2:
                return f"{numbers[0]}.{numbers[1]}"
            return need.name.rpartition("-cu")[2] if "-cu" in need.name else ""
    return ""


def torch_cuda(package: Package) -> tuple[str, str]:
    """(version with its tag, CUDA version) as torch's own version.py has them; from its name where that is missing."""
    version, cuda = package.version, ""
    try:
        text = Path(package.folder, "torch/version.py").read_text("utf-8", "replace")
    except OSError:
        text = ""
    match = re.search(r"^__version__\s*(?::[^=]*)?=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    if match:
        version = match[1]
    match = re.search(r"^cuda\s*(?::[^=]*)?=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    cuda = match[1] if match else of_tag(version) or of_needs(package)
    return version, cuda


def elsewhere(name: str, path: Iterable[str]) -> str:
    """A file of that name in the NVIDIA wheels of the search path or in an installed toolkit; '' for none."""
    for folder in path:
        found = sorted(Path(folder).glob(f"nvidia/*/lib/{name}"))
        if found:
            return str(found[0])
    toolkits = sorted(Path("/usr/local").glob(f"cuda*/lib64/{name}"))
    return str(toolkits[0]) if toolkits else ""


def _load_torch(
    linker: env_libs.Linker, package: Package, path: Sequence[str]
) -> tuple[list[env_libs.Found], list[Missing], list[str]]:
    """torch's CUDA libraries. What the linker does not find, torch loads itself from the NVIDIA wheels."""
    folder = Path(package.folder, "torch/lib")
    found: list[env_libs.Found] = []
    lost: dict[str, str] = {}
    problems: list[str] = []
    for name in ("libtorch_global_deps.so", "libc10_cuda.so", "libtorch_cuda.so"):
        if not (folder / name).exists():
            continue
        try:
            more, missing = linker.load(str(folder / name), CUDA)
        except (OSError, env_elf.NotElf) as error:
            problems.append(f"{folder / name}: {error}")
            continue
        found += more
        lost.update({lib: by for lib, by in missing if lib not in lost})
    gone: list[Missing] = []
    for name, by in lost.items():
        other = elsewhere(name, path)
        if other and "/nvidia/" in other:
            got = env_libs.Found(name, other, "torch's own preload")
            linker.loaded[name] = got
            found.append(got)
        else:
            gone.append(Missing(name, by, other))
    for library in folder.glob("*.so*"):
        linker.loaded.setdefault(library.name, env_libs.Found(library.name, str(library), "loaded"))
    return found, gone, problems


def _kernel(
    linker: env_libs.Linker, package: Package, library: Path, path: Sequence[str]
) -> tuple[Kernel, list[env_libs.Found]]:
    variant = library.parent.name if library.parent.name.startswith("sm") else ""
    cuda = of_tag(package.version)
    try:
        about = env_elf.read(str(library), gpus=True)
        found, missing = linker.load(str(library), ("lib",), depth=0)
    except (OSError, env_elf.NotElf) as error:
        return Kernel(package.name, package.version, cuda, str(library), variant, problem=f"{library}: {error}"), []
    majors = [m[1] for m in (re.match(r"libcudart\.so\.(\d+)", name) for name in about.needed) if m]
    lost = [Missing(name, by, elsewhere(name, path)) for name, by in missing if not name.startswith(DRIVER)]
    built = Kernel(
        package=package.name,
        version=package.version,
        cuda=cuda or of_needs(package) or (majors[0] if majors else ""),
        library=str(library),
        variant=variant,
        missing=tuple(lost),
        sass=tuple(sorted(about.sass)),
        ptx=tuple(sorted(about.ptx)),
    )
    return built, found


def look(
    env: Mapping[str, str],
    workdir: str,
    path: Sequence[str],
    packages: Mapping[str, Package],
    cache_file: str = env_libs.CACHE,
) -> Cuda:
    """The CUDA side of an environment, read as whoever runs this. Never raises: `problems` say what is not known."""
    linker = env_libs.Linker(env, workdir, cache_file)
    torch = packages.get("torch")
    version, cuda = "", ""
    gone: list[Missing] = []
    libraries: list[env_libs.Found] = []
    problems: list[str] = []
    if torch is not None:
        version, cuda = torch_cuda(torch)
        if cuda:
            libraries, gone, problems = _load_torch(linker, torch, path)
    kernels: list[Kernel] = []
    for name, patterns in KERNELS.items():
        package = packages.get(name)
        if package is None:
            continue
        files = [f for pattern in patterns for f in sorted(Path(package.folder).glob(pattern))]
        if not files:
            why = "its libraries are not there (half installed?)"
            kernels.append(Kernel(name, package.version, of_tag(package.version) or of_needs(package), problem=why))
        for file in files if name in AT_START else files[:1]:
            kernel, found = _kernel(linker, package, file, path)
            kernels.append(kernel)
            libraries += found
    shown = [lib for lib in libraries if lib.name.startswith(SHOWN)]
    return Cuda(version, cuda, tuple(gone), tuple(kernels), tuple(shown), tuple(problems))
