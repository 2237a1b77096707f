"""Which part of a start a log line begins or ends. Ids are those of docs/PROTOCOL.md. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_CAPTURE = re.compile(r"(?i)Captur(?:e|ing) (.*?)(?:CUDA|NPU|HIP) ?graphs? ?(begin|end)?")
_BAR = re.compile(r"\s*\d{1,3}%")
_GRAPH_FRAMES = re.compile(
    r"cuda_graph_runner|init_(?:cuda|device|decode_cuda)_graphs?|capture_one_batch_size|graph_runner\.py|"
    r"in (?:_?capture\w*|init_\w*graphs?)\b|capture_model"
)
_FRAMES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "piecewise graphs",
        re.compile(r"(?i)piecewise|prefill_(?:cuda_)?graph|pcg_|breakable_cuda_graph"),
    ),
    ("graphs", _GRAPH_FRAMES),
    (
        "kv cache",
        re.compile(r"memory_pool|init_memory_pool|profile_max_num_token|kv_cache|pool_configurator|_init_\w*pool"),
    ),
    ("weights", re.compile(r"model_loader|weight_utils|load_weights|in load_model\b|create_weights|_initialize_model")),
    ("distributed", re.compile(r"init_torch_distributed|init_process_group|rendezvous|parallel_state|init_parallel")),
)


def phase_of_frames(frames: Iterable[str]) -> str:
    """What a traceback says was under way, '' where it tells nothing. The innermost hint of the list above wins."""
    text = "\n".join(frames)
    if not text:
        return ""
    for name, pattern in _FRAMES:
        if pattern.search(text):
            return name
    return ""


def phase_of_text(low: str) -> str:
    """What a line itself says was under way (lower case): a wrapper's words, '' for none."""
    if "graph failed" in low or "graph capture failed" in low or "for prefill runner" in low:
        return "piecewise graphs" if "piecewise" in low or "prefill" in low else "graphs"
    return ""


def is_graphs(phase: str) -> bool:
    """Whether a graph is being captured."""
    return "graphs" in phase


class Phases:
    """The phase that is under way in one start."""

    def __init__(self) -> None:
        self.now = ""
        self.seen: list[str] = []
        self.served = False
        self._weights = 0
        self._table: dict[str, Callable[[str], str | None]] = {
            "serve": self._arguments,
            "Init ": self._distributed,
            "Load ": self._weight,
            "Loadi": self._loading,
            "Multi": self._loading,
            "Start": self._loading,
            "Using": self._pool,
            "Mamba": self._pool,
            "KV Ca": self._pool,
            "Alloc": self._pool,
            "Memor": self._pool,
            "Captu": self._graphs,
            "Compi": self._graphs,
            "Enter": self._kernels,
            "Try D": self._kernels,
            "DeepG": self._kernels,
            "max_t": self._totals,
            "Uvico": self._http,
            "Appli": self._http,
            "The s": self._ready,
            "vLLM ": self._nccl,
            "sglan": self._nccl,
            "Model": self._took,
            "Graph": self._took,
        }

    def feed(self, message: str) -> bool:
        """Whether this line moved the start on."""
        handler = self._table.get(message[:5])
        if handler is None:
            return False
        found = handler(message)
        if found is None or (found == self.now and found):
            return False
        self.now = found
        if found and found not in self.seen:
            self.seen.append(found)
        return True

    def _arguments(self, msg: str) -> str | None:
        return "imports" if msg.startswith("server_args=") and not self._weights else None

    def _distributed(self, msg: str) -> str | None:
        if "begin" in msg:
            return "distributed"
        return "" if "ends" in msg and self.now == "distributed" else None

    def _nccl(self, msg: str) -> str | None:
        return (
            "distributed" if " is using nccl==" in msg and self.now in ("", "imports") and not self._weights else None
        )

    def _took(self, msg: str) -> str | None:
        if msg.startswith("Model loading took"):
            return "" if "weights" in self.now else None
        return "" if msg.startswith("Graph capturing finished") and "graphs" in self.now else None

    def _weight(self, msg: str) -> str | None:
        if msg.startswith("Load weight begin"):
            self._weights += self.now not in ("weights", "draft weights")
            return "weights" if self._weights <= 1 else "draft weights"
        return "" if msg.startswith("Load weight end") and "weights" in self.now else None

    def _loading(self, msg: str) -> str | None:
        if msg.startswith("Loading model weights took"):
            return "" if "weights" in self.now else None
        if "weights" in self.now or not ("shards" in msg or "Starting to load model" in msg):
            return None
        return "weights" if not self._weights else None

    def _pool(self, msg: str) -> str | None:
        if msg.startswith("Memory pool end"):
            return ""
        if msg.startswith(("Using KV cache dtype", "Mamba Cache is alloc", "KV Cache is alloc", "Memory profiling")):
            return "kv cache"
        return "kv cache" if msg.startswith("Allocating") and "host memory" in msg else None

    def _graphs(self, msg: str) -> str | None:
        if msg.startswith(("Compiling num tokens", "Capturing num tokens")):
            return "piecewise graphs" if "piecewise" not in self.now else None
        if msg.startswith("Capturing batches"):
            return None if is_graphs(self.now) else "graphs"
        match = _CAPTURE.match(msg)
        if match is None or "failed" in msg[:60]:
            return None
        what = match.group(1)
        name = "piecewise graphs" if "piecewise" in what or "prefill" in what else "graphs"
        if "draft" in what:
            name = f"draft {name}"
        if match.group(2) == "end":
            return ""
        return name if match.group(2) == "begin" or "graphs" in msg else None

    def _kernels(self, msg: str) -> str | None:
        return "kernel build" if "DeepGEMM" in msg else None

    def _totals(self, msg: str) -> str | None:
        return "" if msg.startswith("max_total_num_tokens=") and "larger than" not in msg else None

    def _http(self, msg: str) -> str | None:
        return "warm-up" if not self.served and ("Uvicorn running" in msg or "startup complete" in msg) else None

    def _ready(self, msg: str) -> str | None:
        if "fired up and ready to roll" not in msg:
            return None
        self.served = True
        return "ready"
