"""Every configuration that would be wrong or is not supported, each with its reason. Standard library only.

Takes SGLang's ServerArgs (any object with its attributes) after it has chosen backend, page size and graph sizes, and
what is known of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ddtree_kernels.sglang_plugin.settings import MOST_NODES, Refused, Settings
from ddtree_kernels.sglang_plugin.tree import capacity

BACKENDS = {("triton", 1)}
"""(attention backend, top-k) pairs whose verify pass applies the tree's mask."""
_IGNORED = {
    "fa3": "verifies a tree as a chain, silently; it is what a Hopper GPU gets by default",
    "fa4": "is causal only",
    "trtllm_mha": "is causal only",
    "flashinfer": "decides at graph capture that it needs no mask",
}
_HYBRID_FIELDS = (
    "full_attention_interval",
    "hybrid_override_pattern",
    "layers_block_type",
    "linear_attn_config",
    "linear_num_key_heads",
    "mamba_d_state",
    "mamba_num_heads",
    "ssm_state_size",
)
_HYBRID_LAYERS = ("linear", "mamba", "conv", "recurrent", "ssm")
MOST_REQUESTS = 8
"""default of --max-running-requests: buffers grow with requests times nodes."""


@dataclass(frozen=True)
class Model:
    """What decides of the target. hybrid, window: what makes it so, '' for neither."""

    mla: bool = False
    hybrid: str = ""
    window: str = ""
    multimodal: bool = False
    encoder_decoder: bool = False
    context: int = 0
    vocabulary: int = 0
    heads: int = 0
    head_size: int = 0


def _get(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)


def hybrid_by(config: Any) -> str:
    """The field of a text config that says its layers keep a recurrent state, '' for none."""
    for name in _HYBRID_FIELDS:
        if _get(config, name):
            return name
    kinds = _get(config, "layer_types")
    for kind in kinds if isinstance(kinds, (list, tuple)) else ():
        if any(word in str(kind) for word in _HYBRID_LAYERS):
            return f"layer_types {kind}"
    return ""


def window_by(config: Any) -> str:
    """The field of a text config that says some layers see a window only, '' for none."""
    kinds = _get(config, "layer_types")
    if isinstance(kinds, (list, tuple)):
        found = next((str(k) for k in kinds if "sliding" in str(k) or "chunk" in str(k)), "")
        if found:
            return f"layer_types {found}"
    if _get(config, "attention_chunk_size"):
        return "attention_chunk_size"
    for name in ("sliding_window_size", "sliding_window", "window_size"):
        if _get(config, name) and _get(config, "use_sliding_window") is not False:
            return name
    return ""


def backend(args: Any) -> tuple[str, str]:
    """(prefill, decode) attention backends in effect."""
    both = getattr(args, "attention_backend", None)
    return (
        str(getattr(args, "prefill_attention_backend", None) or both),
        str(getattr(args, "decode_attention_backend", None) or both),
    )


def _over_one(*names: str) -> Callable[[Any], bool]:
    return lambda args: any((getattr(args, name, 1) or 1) > 1 for name in names)


def _on(*names: str) -> Callable[[Any], bool]:
    return lambda args: any(bool(getattr(args, name, None)) for name in names)


ARGUMENTS: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (_over_one("page_size"), "pages of more than one token are not supported: use --page-size 1"),
    (_over_one("tp_size"), "tensor parallel is not supported: use --tp-size 1"),
    (_over_one("dp_size"), "data parallel is not supported: use --dp-size 1"),
    (_on("enable_dp_attention"), "data-parallel attention is not supported: leave --enable-dp-attention out"),
    (_over_one("pp_size"), "pipeline parallel is not supported: use --pp-size 1"),
    (_over_one("ep_size", "moe_dp_size"), "expert parallel is not supported: use --ep-size 1"),
    (_over_one("attn_cp_size"), "context parallel is not supported: use --attention-context-parallel-size 1"),
    (_over_one("nnodes"), "several nodes are not supported: use --nnodes 1"),
    (
        _over_one("tokenizer_worker_num"),
        "extra tokenizer workers load no plug-in and would not start: use --tokenizer-worker-num 1",
    ),
    (_on("enable_lora", "lora_paths"), "LoRA is not supported: leave --enable-lora and --lora-paths out"),
    (
        _on("enable_deterministic_inference"),
        "deterministic inference takes another attention kernel, not tested with a tree: leave it out",
    ),
    (_on("enable_two_batch_overlap", "enable_pdmux"), "two batches at once are not supported: leave that out"),
    (
        lambda args: str(getattr(args, "disaggregation_mode", None) or "null") != "null",
        "prefill and decode on separate servers are not supported: leave --disaggregation-mode out",
    ),
    (_on("speculative_draft_window_size"), "draft windows are not supported: use no --speculative-draft-window-size"),
    (_on("speculative_adaptive"), "adaptive speculation changes the width that graphs were captured for: leave it out"),
    (_on("disable_cuda_graph_padding"), "graphs need their padding: leave --disable-cuda-graph-padding out"),
    (_on("dllm_algorithm"), "diffusion models are not supported: leave --dllm-algorithm out"),
    (_on("enable_hisparse"), "sparse attention is not supported: leave --enable-hisparse out"),
    (lambda args: not getattr(args, "speculative_draft_model_path", None), "it needs --speculative-draft-model-path"),
)  # fmt: skip
"""(wrong, reason) of SGLang's own arguments."""


def _problems(args: Any, settings: Settings, model: Model) -> Iterator[str]:
    yield from (reason for wrong, reason in ARGUMENTS if wrong(args))
    topk = getattr(args, "speculative_eagle_topk", None) or 1
    for name in dict.fromkeys(backend(args)):
        if (name, topk) not in BACKENDS:
            why = _IGNORED.get(name, "is not known to apply a tree's mask")
            if any(name == known for known, _ in BACKENDS):
                yield f"--speculative-eagle-topk {topk} is not supported on {name}: leave it out"
            else:
                yield f"attention backend {name} {why}: use --attention-backend triton"
    if model.mla:
        yield "targets with latent attention (MLA) are not supported"
    if model.hybrid:
        yield f"hybrid targets are not supported ({model.hybrid}): a mask does not part siblings in a recurrent layer"
    if model.window:
        yield f"targets with a sliding window are not supported ({model.window}): it counts rows, not depth"
    if model.multimodal:
        yield "multimodal targets are not supported: use --language-only or a text model"
    if model.encoder_decoder:
        yield "encoder-decoder targets are not supported"
    yield from sizes(settings, model.vocabulary)


def sizes(settings: Settings, vocabulary: int = 0) -> Iterator[str]:
    """What is wrong with budget, block and ranks."""
    budget, spine = settings.budget, settings.spine
    if settings.block < 2:
        yield f"a block of {settings.block} drafts nothing: --speculative-dflash-block-size is at least 2"
        return
    if budget < spine:
        yield (
            f"budget {budget} is under block size - 1 = {spine}, so that the chain does not fit: "
            f"use a budget of at least {spine}, or --speculative-dflash-block-size {max(2, budget + 1)}"
        )
        return
    if budget > MOST_NODES:
        yield f"budget {budget} is over {MOST_NODES}"
    ranks = min(settings.ranks, vocabulary) if vocabulary else settings.ranks
    if ranks < 1 or capacity(spine, ranks, budget) < budget:
        yield f"{spine} positions of {ranks} tokens cannot hold {budget} nodes: lower the budget or raise DDTREE_TOPK"


def check(args: Any, settings: Settings, model: Model) -> None:
    """Refused with every reason, in one line, where there is one."""
    found = list(dict.fromkeys(_problems(args, settings, model)))
    if found:
        raise Refused("DDTREE refuses: " + "; ".join(found))


def settle(args: Any, settings: Settings) -> list[str]:
    """Writes into the arguments what DDTREE needs, as stock does for DFLASH; what was changed, for the log."""
    said = []
    if settings.budget == settings.spine:
        said.append(f"a budget of {settings.budget} is the chain alone: a tree gains from {settings.budget + 1} on")
    given = args.speculative_num_draft_tokens
    if given is not None and given != settings.width:
        said.append(f"--speculative-num-draft-tokens {given} gives way to a budget of {settings.budget}")
    args.speculative_num_draft_tokens = settings.width
    args.speculative_dflash_block_size = settings.block
    args.speculative_num_steps = 1
    args.speculative_eagle_topk = 1
    if not args.disable_overlap_schedule:
        args.disable_overlap_schedule = True
        said.append("overlap scheduling is off")
    if args.enable_mixed_chunk:
        args.enable_mixed_chunk = False
        said.append("mixed chunked prefill is off")
    if args.max_running_requests is None:
        args.max_running_requests = MOST_REQUESTS
        said.append(f"--max-running-requests is {MOST_REQUESTS}, since buffers grow with requests times nodes")
    most = args.max_running_requests
    captured = list(args.cuda_graph_bs or ())
    if captured and max(captured) > most:
        args.cuda_graph_bs = [*(size for size in captured if size < most), most]
        said.append(f"graphs are captured up to batch {most}")
    if args.cuda_graph_max_bs is not None and args.cuda_graph_max_bs > most:
        args.cuda_graph_max_bs = most
    return said
