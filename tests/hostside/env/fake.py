"""An environment with the right metadata and nothing inside: virtual environment, distributions, libraries, models.

Libraries are real ELF files by gcc, with names, needs and search paths, and a fatbin that lists GPU architectures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ENTRY, HEADER = 64, 16


def fatbin(sass: Sequence[int], ptx: Sequence[int] = ()) -> str:
    """Assembler of a `.nv_fatbin` with an entry for each architecture, each with 8 bytes of code."""
    entries = [(2, arch) for arch in sass] + [(1, arch) for arch in ptx]
    lines = ['.section .nv_fatbin,"a",@progbits', ".balign 8", ".long 0xBA55ED50", ".short 1, 16"]
    lines.append(f".quad {len(entries) * (ENTRY + 8)}")
    for kind, arch in entries:
        lines += [f".short {kind}, 0x101", f".long {ENTRY}", ".quad 8", ".zero 12", f".long {arch}"]
        lines += [f".zero {ENTRY - 32}", ".quad 0"]
    return "\n".join(lines) + "\n"


class Libraries:
    """Builds libraries and keeps them for the session: gcc takes 30 ms for each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: dict[tuple[Any, ...], bytes] = {}

    def make(
        self,
        soname: str,
        needed: Sequence[str] = (),
        *,
        rpath: str = "",
        runpath: str = "",
        sass: Sequence[int] = (),
        ptx: Sequence[int] = (),
    ) -> bytes:
        """The file of such a library."""
        key = (soname, tuple(needed), rpath, runpath, tuple(sass), tuple(ptx))
        if key not in self._made:
            self._made[key] = self._build(*key)
        return self._made[key]

    def _build(
        self, soname: str, needed: Sequence[str], rpath: str, runpath: str, sass: Sequence[int], ptx: Sequence[int]
    ) -> bytes:
        for name in needed:
            stub = self.folder / name
            if not stub.exists():
                self._gcc(stub, "", [f"-Wl,-soname,{name}"])
        out = self.folder / "made.so"
        flags = [f"-Wl,-soname,{soname}", f"-L{self.folder}", "-Wl,--no-as-needed"]
        flags += [f"-l:{name}" for name in needed]
        if rpath or runpath:
            kind = "--disable-new-dtags" if rpath else "--enable-new-dtags"
            flags += [f"-Wl,{kind},-rpath,{rpath or runpath}"]
        self._gcc(out, fatbin(sass, ptx) if sass or ptx else "", flags)
        return out.read_bytes()

    def _gcc(self, out: Path, assembler: str, flags: Sequence[str]) -> None:
        source = self.folder / "source.s"
        source.write_text(assembler + '.section .note.GNU-stack,"",@progbits\n')
        argv = ["gcc", "-shared", "-nostdlib", "-o", str(out), str(source), *flags]
        subprocess.run(argv, check=True, capture_output=True)


class Environment:
    """A virtual environment below `root`, as the host calls it `/`+`at`. python: the host's own interpreter."""

    def __init__(
        self, root: Path, at: str, libraries: Libraries, python: str = sys.executable, version: str = ""
    ) -> None:
        self.root, self.at, self.libraries = root, at, libraries
        self.version = version or f"{sys.version_info.major}.{sys.version_info.minor}"
        home = self.path("")
        (home / "bin").mkdir(parents=True)
        (home / "bin/python3").symlink_to(python)
        (home / "pyvenv.cfg").write_text(f"home = {Path(python).parent}\ninclude-system-site-packages = false\n")
        self.site.mkdir(parents=True)

    @property
    def python(self) -> str:
        """The interpreter, as the host calls it."""
        return f"{self.at}/bin/python3"

    @property
    def site_at(self) -> str:
        """site-packages, as the host calls it."""
        return f"{self.at}/lib/python{self.version}/site-packages"

    @property
    def site(self) -> Path:
        """site-packages, for this process."""
        return self.path(f"lib/python{self.version}/site-packages")

    def path(self, inside: str) -> Path:
        """A path of the environment, for this process."""
        return self.root / self.at.lstrip("/") / inside

    def write(self, inside: str, data: str | bytes) -> None:
        """A file below site-packages."""
        target = self.site / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.encode() if isinstance(data, str) else data)

    def package(self, name: str, version: str, requires: Sequence[str] = (), files: Mapping[str, str] = {}) -> None:
        """A distribution with its metadata and modules."""
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
        self.write(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}\nText.\n")
        self.write(f"{info}/RECORD", "")
        for path, text in files.items():
            self.write(path, text)

    def torch(self, version: str = "2.9.1", cuda: str = "12.8", *, own_libraries: bool = True) -> None:
        """torch with the libraries of its CUDA beside it, found through the RPATH that its wheels have."""
        tag = f"{version}+cu{cuda.replace('.', '')}"
        major = cuda.split(".")[0]
        self.package("torch", tag, files={"torch/__init__.py": ""})
        self.write("torch/version.py", f"__version__ = '{tag}'\ncuda: Optional[str] = '{cuda}'\n")
        rpath = "$ORIGIN/../../nvidia/cuda_runtime/lib:$ORIGIN"
        needed = [f"libcudart.so.{major}", f"libnvrtc.so.{major}"]
        self.write("torch/lib/libc10.so", self.libraries.make("libc10.so"))
        self.write("torch/lib/libc10_cuda.so", self.libraries.make("libc10_cuda.so", needed, rpath=rpath))
        if own_libraries:
            self.runtime(major, "cuda_runtime")

    def runtime(self, major: str, wheel: str) -> str:
        """The CUDA libraries of an NVIDIA wheel; their folder, as the host calls it."""
        for name in ("libcudart", "libnvrtc"):
            soname = f"{name}.so.{major}"
            self.write(f"nvidia/{wheel}/lib/{soname}", self.libraries.make(soname))
        return f"{self.site_at}/nvidia/{wheel}/lib"

    def kernel(
        self,
        version: str = "0.3.21",
        major: str = "12",
        sass: Sequence[int] = (80, 90),
        *,
        variants: Sequence[str] = ("sm90", "sm100"),
        more: Sequence[str] = (),
    ) -> None:
        """sgl-kernel with its libraries by architecture."""
        self.package("sgl-kernel", version, files={"sgl_kernel/__init__.py": ""})
        needed = ["libc10.so", f"libcudart.so.{major}", "libcuda.so.1", *more]
        data = self.libraries.make("common_ops.abi3.so", needed, sass=sass)
        for variant in variants:
            self.write(f"sgl_kernel/{variant}/common_ops.abi3.so", data)

    def sglang(
        self, version: str = "0.5.12", imports: str = "", requires: Sequence[str] = ("torch", "sgl-kernel")
    ) -> None:
        """A little sglang whose launch_server imports `imports` (lines) through a module of its own."""
        files = {
            "sglang/__init__.py": "",
            "sglang/launch_server.py": "import os\nfrom sglang.srt.server_args import prepare\n",
            "sglang/srt/__init__.py": "",
            "sglang/srt/server_args.py": f"import json\nimport torch\n{imports}\nprepare = None\n",
        }
        self.package("sglang", version, requires, files)


TARGET = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28,
    "vocab_size": 151936, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 3072, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "max_position_embeddings": 40960,
}  # fmt: skip
DRAFT = {
    **TARGET, "architectures": ["DFlashDraftModel"], "num_hidden_layers": 5, "block_size": 16, "num_target_layers": 28,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 7, 13, 19, 25]},
}  # fmt: skip


def model(
    folder: Path, config: Mapping[str, Any], *, tokenizer: bool = True, shards: int = 2, size: int = 4096
) -> None:
    """A checkpoint: config, index and shards with a valid safetensors header of one tensor each."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    names = [f"model-{i + 1:05d}-of-{shards:05d}.safetensors" for i in range(shards)]
    weight_map = {f"model.layers.{i}.mlp.up_proj.weight": name for i, name in enumerate(names)}
    index = {"metadata": {"total_size": size * shards}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for tensor, name in weight_map.items():
        header = json.dumps({tensor: {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
        (folder / name).write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))
    if tokenizer:
        (folder / "tokenizer.json").write_text("{}")
