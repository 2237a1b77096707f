"""What the running server knows of itself: readiness, figures, and what /server_info tells."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ddtree_kernels.decode.pool import GIB
from ddtree_kernels.decode.worker import Worker
from ddtree_kernels.serve.arguments import flags
from ddtree_kernels.serve.load import Loaded


@dataclass
class State:
    """A loaded decoder at work. warmed: a real generation came through. draining: SIGTERM was seen."""

    args: argparse.Namespace
    loaded: Loaded
    worker: Worker
    warmed: bool = False
    draining: bool = False
    totals: dict[str, int] = field(default_factory=lambda: {"requests": 0, "prompt": 0, "generated": 0, "aborted": 0})

    @property
    def name(self) -> str:
        """The served model's name."""
        return str(self.args.served_model_name or self.args.model_path)

    @property
    def drafted(self) -> int:
        """Tokens verified a round besides the root."""
        return self.loaded.engine.round.nodes - 1

    @property
    def refused(self) -> str:
        """Why nothing is answered now; "" when it is."""
        if self.worker.fault:
            return f"decoding has failed: {self.worker.fault}"
        if self.draining:
            return "the server is shutting down"
        return "" if self.warmed else "the server is warming up"

    def model_info(self) -> dict[str, Any]:
        """/model_info."""
        config = self.loaded.engine.pair.target.config
        return {
            "model_path": self.args.model_path,
            "tokenizer_path": str(self.loaded.model),
            "is_generation": True,
            "model_type": "qwen3",
            "architectures": [config.architecture],
            "weight_version": "default",
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "preferred_sampling_params": None,
        }

    def server_info(self) -> dict[str, Any]:
        """/server_info: every flag with the value in force, memory, acceptance. The key is masked."""
        loaded, engine = self.loaded, self.loaded.engine
        settings = loaded.settings
        speculative = settings.drafts
        return {
            **flags(self.args),
            "served_model_name": self.name,
            "version": _version(),
            "device": engine.device.type,
            "dtype": str(engine.pair.target.dtype).removeprefix("torch."),
            "mode": settings.mode,
            "budget": settings.budget,
            "spine": settings.spine,
            "context_length": engine.context,
            "mem_fraction_static": round(loaded.size.fraction, 6),
            "chunked_prefill_size": engine.chunk,
            "disable_cuda_graph": bool(loaded.graphs),
            "cuda_graph": f"off: {loaded.graphs}" if loaded.graphs else "on",
            "max_running_requests": 1,
            "skip_tokenizer_init": False,
            "speculative_algorithm": {"autoregressive": None, "linear": "DFLASH"}.get(settings.mode, "DDTREE"),
            "speculative_num_draft_tokens": engine.round.nodes if speculative else None,
            "max_total_num_tokens": loaded.size.tokens,
            "max_req_input_len": engine.context - 1,
            "startup_time": loaded.times,
            "internal_states": [self.internal()],
        }

    def internal(self) -> dict[str, Any]:
        """What the decoder says of itself, in SGLang's words."""
        counts, memory = self.worker.counts, self.loaded.memory
        gb = {name: round(value / GIB, 4) for name, value in memory.items()}
        out: dict[str, Any] = {
            "last_gen_throughput": round(self.worker.meter.tok_s, 2),
            "effective_max_running_requests_per_dp": 1,
            "num_running_reqs": self.worker.running,
            "num_waiting_reqs": self.worker.waiting,
            "memory_usage": {**gb, "graph": 0.0, "token_capacity": self.loaded.size.tokens},
        }
        if self.loaded.settings.drafts and counts.accept_length is not None:
            out["avg_spec_accept_length"] = round(counts.accept_length, 4)
            out["spec_verify_ct"] = counts.rounds
        if self.loaded.settings.mode == "shadow-linear":
            out["shadow"] = {
                "rounds": counts.rounds, "linear_tokens": counts.committed, "tree_tokens": counts.would,
                "tree_longer": counts.longer, "disagreements": counts.contradictions,
            }  # fmt: skip
        return out


def _version() -> str:
    try:
        return version("ddtree-console")
    except PackageNotFoundError:
        import ddtree_kernels

        return ddtree_kernels.__version__
