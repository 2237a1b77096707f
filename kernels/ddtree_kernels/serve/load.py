"""From arguments to a decoder, with SGLang's line for each phase. Nothing listens yet."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ddtree_kernels.decode import graphs, pool
from ddtree_kernels.decode.engine import CHUNK, Engine, reserve
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models import (
    Cache,
    Pair,
    check_pair,
    load_draft,
    load_target,
    load_tokenizer,
    read_draft_config,
    read_target_config,
    weight_bytes_of,
)
from ddtree_kernels.serve.log import say, timed
from ddtree_kernels.serve.paths import StartError

if TYPE_CHECKING:
    from ddtree_kernels.models import DraftConfig, LayerShape, TargetConfig, Tokenizer


_SMALL = 64 << 20
"""Bytes of a target whose matrices are too small to share out: threads would only wait for each other."""


@dataclass
class Loaded:
    """A decoder and what is to be told of it. memory: bytes by name. times: seconds by phase, SGLang's names."""

    engine: Engine
    settings: Settings
    model: Path
    size: pool.Size
    memory: dict[str, int]
    times: dict[str, float] = field(default_factory=dict)
    graphs: str = ""
    """Why no graph runs; "" = whole rounds run in graphs."""


def device_and_type(args: argparse.Namespace) -> tuple[torch.device, torch.dtype]:
    """Where and in what numbers. StartError for a GPU that is not there."""
    cuda = torch.cuda.is_available()
    if args.device == "cuda" and not cuda:
        raise StartError("--device cuda: torch sees no GPU here; use --device cpu, or a build of torch for this driver")
    device = torch.device("cuda" if cuda and args.device != "cpu" else "cpu")
    name = args.dtype if args.dtype != "auto" else "bfloat16" if device.type == "cuda" else "float32"
    return device, getattr(torch, name)


def context_of(args: argparse.Namespace, config: TargetConfig) -> int:
    """The context length. StartError where more is asked for than the model has."""
    own = config.shape.max_position_embeddings
    if args.context_length is not None and args.context_length > own:
        raise StartError(
            f"User-specified context_length ({args.context_length}) is greater than the derived context_length "
            f"({own}): lower --context-length"
        )
    return args.context_length or own


def load(args: argparse.Namespace, target_path: Path, draft_path: Path | None) -> Loaded:
    """Everything up to a decoder that could answer, of the folders of target and drafter.

    ModelError, StartError, SettingsError, MemoryShort, CaptureError: each one line that says what to do.
    """
    times: dict[str, float] = {}
    settings = Settings(args.mode, args.budget, args.spine, args.draft_temperature, args.tree_top_k)
    config = read_target_config(target_path)
    draft_config = None if draft_path is None else read_draft_config(draft_path)
    if draft_config is not None and draft_path is not None:
        check_pair(draft_config, config, draft_path)
        settings = settings.fitted(draft_config.block_size)
    context = context_of(args, config)
    device, dtype = device_and_type(args)
    tokenizer = load_tokenizer(target_path, config.vocab_size)
    need = _need(target_path, draft_path, config, draft_config, settings, dtype)
    size = pool.size(
        pool.free_memory(device), need, context=context, fraction=args.mem_fraction_static,
        most=args.max_total_tokens, device=device.type,
    )  # fmt: skip
    if device.type == "cpu" and need.weights < _SMALL:
        torch.set_num_threads(1)
    with timed(times, "load_weight"):
        pair = _weights(target_path, draft_path, tokenizer, device, dtype)
    with timed(times, "kv_cache_allocation"):
        cache, draft_cache = _caches(pair, size.tokens, need)
    graphed = device.type == "cuda" and not args.disable_cuda_graph
    engine = Engine(
        pair, settings, cache, draft_cache, context=context, static=graphed, chunk=args.chunked_prefill_size
    )
    with timed(times, "cuda_graph"):
        why = _graphs(engine, args.disable_cuda_graph)
    memory = {
        "weight": need.weights, "draft_weight": need.draft_weights, "kvcache": size.tokens * need.token,
        "draft_kvcache": size.tokens * need.draft_token, "startup_available": size.free,
    }  # fmt: skip
    say(
        f"max_total_num_tokens={size.tokens}, chunked_prefill_size={args.chunked_prefill_size or CHUNK[device.type]}, "
        f"max_running_requests=1, context_len={engine.context}, available_gpu_mem={_free(device)}"
    )
    return Loaded(engine, settings, target_path, size, memory, times, why)


def _need(
    target: Path, draft: Path | None, config: TargetConfig, draft_config: DraftConfig | None, settings: Settings,
    dtype: torch.dtype,
) -> pool.Need:  # fmt: skip
    element = dtype.itemsize
    return pool.Need(
        weights=weight_bytes_of(target, dtype),
        draft_weights=0 if draft is None else weight_bytes_of(draft, dtype),
        token=config.shape.kv_bytes(element),
        draft_token=0 if draft_config is None else draft_config.shape.kv_bytes(element),
        reserve=reserve(settings, 1 if draft_config is None else draft_config.block_size),
    )


def _free(device: torch.device) -> str:
    return f"{pool.free_memory(device) / pool.GIB:.2f} GB"


def _weights(
    target_path: Path, draft_path: Path | None, tokenizer: Tokenizer, device: torch.device, dtype: torch.dtype
) -> Pair:
    def read(since: float, used: int, kind: str) -> None:
        say(
            f"Load weight end. elapsed={time.monotonic() - since:.2f} s, type={kind}, avail mem={_free(device)}, "
            f"mem usage={used / pool.GIB:.2f} GB."
        )

    since = time.monotonic()
    say(f"Load weight begin. avail mem={_free(device)}")
    target = load_target(target_path, device, dtype)
    _tidy(device)
    read(since, target.weight_bytes(), target.config.architecture)
    if draft_path is None:
        return Pair(target, None, tokenizer, target_path)
    since = time.monotonic()
    say(f"Load weight begin. avail mem={_free(device)}")
    draft = load_draft(draft_path, target, device, dtype)
    _tidy(device)
    read(since, draft.weight_bytes(), "DFlashDraftModel")
    return Pair(target, draft, tokenizer, target_path)


def _tidy(device: torch.device) -> None:
    """Merging a layer's matrices leaves their parts with torch's allocator: what is told as free should be free."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _caches(pair: Pair, tokens: int, need: pool.Need) -> tuple[Cache, Cache | None]:
    device, dtype = pair.target.device, pair.target.dtype

    def allocate(shape: LayerShape, token: int) -> Cache:
        cache = Cache(shape, tokens, device, dtype)
        half = tokens * token / 2 / pool.GIB
        say(f"KV Cache is allocated. dtype: {dtype}, #tokens: {tokens}, K size: {half:.2f} GB, V size: {half:.2f} GB")
        say(f"Memory pool end. avail mem={_free(device)}")
        return cache

    try:
        cache = allocate(pair.target.config.shape, need.token)
        return cache, None if pair.draft is None else allocate(pair.draft.config.shape, need.draft_token)
    except RuntimeError as error:  # torch's OutOfMemoryError, or the host's allocator
        raise StartError(
            f"Not enough memory for a KV pool of {tokens} tokens: {str(error).splitlines()[0]}: "
            "lower --mem-fraction-static or --max-total-tokens"
        ) from error


def _graphs(engine: Engine, disabled: bool) -> str:
    """Captures where there is something to capture; why not, else ""."""
    if engine.device.type != "cuda":
        say("CUDA graphs are off: this runs on a CPU")
        return "cpu"
    if disabled:
        say("CUDA graphs are off: --disable-cuda-graph")
        return "disable_cuda_graph"
    since = time.monotonic()
    what = "decode" if engine.settings.mode == "autoregressive" else "verify"
    nodes = engine.round.nodes
    say(f"Capture target {what} CUDA graph begin. backend=full, num_tokens_per_req={nodes}, bs [1]")
    graphs.capture(engine)
    say(f"Capture target {what} CUDA graph end. elapsed={time.monotonic() - since:.2f} s")
    return ""
