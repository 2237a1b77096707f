"""From what was read on the host and what the operator set to the numbers of one launch. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ddtree_console.domain.memory import defaults, launch, release, weights
from ddtree_console.domain.memory.pool import Case
from ddtree_console.domain.memory.release import Rules
from ddtree_console.domain.memory.shape import BYTES, Shape, Unknown, read
from ddtree_console.domain.memory.types import Inputs, ModelFacts

MiB = 1024**2
CONTEXT = 624 * MiB
"""CUDA context and libraries before anything is loaded: an H200 without processes has 139.80 GiB free, and SGLang
0.5.12 counted from 139.19 (torch 2.11, CUDA 13.0). Each start corrects it for its own host."""
KV_BYTES = {"fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "fp8": 1.0, "bf16": 2.0, "bfloat16": 2.0, "fp4_e2m1": 0.5625}
"""of one element; fp4 keeps a scale of 16 elements beside its half byte."""
CHAIN_OR_TREE = ("dflash", "ddtree", "dspark")
EAGLE = ("eagle", "eagle3", "nextn", "standalone")
_UNMODELLED = ("cpu-offload-gb", "enable-dp-attention", "enable-linear-replayssm-spec", "enable-hisparse")
_BUFFERED = ("Qwen3Next", "Qwen3_5")
BALANCE = 0.9
"""SGLang refuses a slot whose GPUs differ more than that in free memory."""


class Refused(Unknown):
    """It is known, and it cannot start. lever: what would change that."""

    def __init__(self, why: str, lever: str) -> None:
        super().__init__(why)
        self.lever = lever


@dataclass(frozen=True)
class Launch:
    """The case with what is said about it. fraction: as set or as SGLang chooses; own: what SGLang would choose."""

    case: Case
    fraction: float
    own: float
    told: bool
    tp: int
    rule: Rules
    shape: Shape
    draft: Shape | None
    kv_width: float
    context_told: bool
    notes: tuple[str, ...] = ()


def tree_width(flags: Mapping[str, Any], draft: Shape | None) -> int:
    """Tokens of one verification, root included; 0 without speculation."""
    if not launch.text(flags, "speculative-algorithm"):
        return 0
    budget = launch.whole(flags, "speculative-ddtree-budget")
    told = launch.whole(flags, "speculative-num-draft-tokens")
    if budget is not None:
        return budget + 1
    return told or (draft.block if draft is not None and draft.block else 16)


def kv_bytes(shape: Shape, tp: int, width: float) -> int:
    """K and V of one token on one GPU."""
    if shape.latent:
        return int(shape.latent * shape.attention * width)
    each = max(1, shape.kv_heads // tp) * (shape.head_dim + shape.value_dim)
    return int(each * shape.attention * width)


def slot_bytes(shape: Shape, tp: int, flags: Mapping[str, Any]) -> int:
    """State of one slot on one GPU: convolution window (bfloat16) and recurrent state."""
    if not shape.linear:
        return 0
    if shape.value_heads % tp:
        raise Unknown(f"tp-size {tp} does not divide the model's {shape.value_heads} linear heads")
    groups = shape.key_heads if shape.key_heads % tp == 0 else tp
    window = (shape.value_heads * shape.linear_value_dim + 2 * groups * shape.key_dim) // tp * (shape.kernel - 1)
    dtype = launch.text(flags, "mamba-ssm-dtype") or shape.state_dtype
    state = shape.value_heads // tp * shape.linear_value_dim * shape.key_dim * BYTES.get(dtype, 4)
    return shape.linear * (window * 2 + state)


def _kv_width(flags: Mapping[str, Any], name: str, model: float) -> float:
    dtype = launch.text(flags, name)
    if dtype in ("", "auto"):
        return model
    if dtype not in KV_BYTES:
        raise Unknown(f"the size of --{name} {dtype[:40]} is not known")
    return KV_BYTES[dtype]


def _slots_each(flags: Mapping[str, Any], rule: Rules, shape: Shape, algorithm: str) -> int:
    """State slots that one running request holds while the radix cache is on."""
    overlap = not launch.on(flags, "disable-overlap-schedule") and algorithm != "ddtree"
    overlap = overlap and (not algorithm or rule.number >= (0, 5, 14))
    how = launch.text(flags, "mamba-radix-cache-strategy") or "auto"
    if how == "auto":
        able = rule.auto_buffer and overlap and shape.architecture.startswith(_BUFFERED)
        how = "extra_buffer" if able else "no_buffer"
    if not how.startswith("extra_buffer"):
        return 3
    return 3 + (2 if overlap and how == "extra_buffer" else 1)


def _weights(facts: ModelFacts, shape: Shape, flags: Mapping[str, Any], tp: int, draft: bool) -> int:
    """Bytes of the model on one GPU. Unknown where neither the files nor dummy weights tell."""
    which = "draft" if draft else "model"
    dummy = launch.text(flags, "speculative-draft-load-format" if draft else "load-format") or launch.text(
        flags, "load-format"
    )
    total = weights.counted(shape, draft) if dummy == "dummy" else facts.weights
    if total is None:
        why = "; ".join(facts.problems) or "no weights were found"
        raise Unknown(f"the size of the {which}'s weights is not known: {why}")
    if not 0 < total < 1 << 50:
        raise Unknown(f"the {which}'s weights are said to be {total} bytes")
    if not shape.quantized and launch.text(flags, "quantization") == "fp8":
        kept = 0 if draft else weights.embeddings(shape)
        total = kept + max(0, total - kept) * BYTES["bf16"] // (2 * shape.width)
        return total // tp
    return total // tp + (0 if shape.quantized else weights.overhead(shape, tp, draft))


def _shape(facts: ModelFacts, which: str) -> Shape:
    try:
        return read(facts.config)
    except Unknown as error:
        told = "; ".join(facts.problems)
        raise Unknown(f"{which}: {told or error}") from None


def _memory(inputs: Inputs, tp: int) -> tuple[int, int]:
    """(free of the fullest GPU, total of the smallest). Refused where SGLang itself would refuse the GPUs."""
    first = launch.whole(inputs.flags, "base-gpu-id", 0) or 0
    free = inputs.free[first : first + tp]
    if not inputs.free or min(inputs.free) < 0:
        raise Unknown("the free memory of the GPUs is not known")
    if len(free) < tp:
        have = len(inputs.free)
        raise Refused(f"tp-size {tp} needs {tp} GPUs and the slot has {have}", f"tp-size {have}, or more GPUs")
    least, most = min(free), max(free)
    if least < BALANCE * most:
        at = first + free.index(least)
        why = f"GPU {at} of the slot has {least / 2**30:.1f} GiB free, another {most / 2**30:.1f}: SGLang refuses that"
        raise Refused(why, f"free GPU {at} of the slot")
    total = max(least, min(inputs.total[first : first + tp] or free))
    if total <= 0:
        raise Unknown("the size of the GPUs is not known")
    return least, total


def build(inputs: Inputs) -> Launch:
    """The launch in numbers. Unknown says what is not known; Refused what cannot start whatever its size."""
    flags = inputs.flags
    notes: list[str] = []
    number = release.parse(inputs.release)
    newest = ".".join(map(str, release.NEWEST))
    if number is None:
        notes.append(f"the release is not known: counted as {newest}")
    elif number > release.NEWEST:
        notes.append(f"{inputs.release} is newer than what was read: counted as {newest}")
    rule = release.rules(number or release.NEWEST)
    for name in _UNMODELLED:
        if launch.on(flags, name):
            raise Unknown(f"--{name} is not modelled")
    for name in ("pp-size", "dp-size"):
        if (launch.whole(flags, name) or 1) > 1:
            raise Unknown(f"--{name} is not modelled")
    tp = launch.whole(flags, "tp-size") or 1
    free, total = _memory(inputs, tp)
    shape = _shape(inputs.target, "model")
    if shape.heads % tp:
        raise Unknown(f"tp-size {tp} does not divide the model's {shape.heads} attention heads")
    algorithm = launch.text(flags, "speculative-algorithm")
    draft = _draft(inputs, algorithm)
    case = _case(inputs, rule, shape, draft, tp, (free, total))
    vision = shape.vision if not launch.on(flags, "language-only") else 0
    batch = defaults.largest_batch(flags, total, rule, tp, case.asked)
    kept = defaults.reserved(
        flags, total, rule, tp, batch, case.prefills, bool(shape.latent), release.decode_graph(rule, flags)
    )
    own = defaults.fraction(total, rule, tp, kept, vision)
    told = launch.number(flags, "mem-fraction-static")
    if told is not None and not 0 < told < 1:
        raise Unknown(f"--mem-fraction-static is {told:g}; wanted above 0 and below 1")
    width = _kv_width(flags, "kv-cache-dtype", shape.width)
    context_told = launch.whole(flags, "context-length") is not None
    return Launch(
        case=case,
        fraction=own if told is None else told,
        own=own,
        told=told is not None,
        tp=tp,
        rule=rule,
        shape=shape,
        draft=draft,
        kv_width=width,
        context_told=context_told,
        notes=tuple(notes),
    )


def _draft(inputs: Inputs, algorithm: str) -> Shape | None:
    if not algorithm or algorithm == "ngram":
        return None
    if inputs.draft is None:
        raise Unknown(f"speculation with {algorithm} has a draft model, and none was read")
    shape = _shape(inputs.draft, "draft model")
    return replace(shape, linear=0) if shape.linear else shape


def _longest_prefill(flags: Mapping[str, Any], rule: Rules, step: int) -> int:
    """The largest prefill with a graph: a chunk, less where the pool or, from 0.5.15, a request is shorter."""
    asked = launch.whole(flags, "cuda-graph-max-bs-prefill") or launch.whole(flags, "piecewise-cuda-graph-max-tokens")
    bounds = [asked or step, launch.whole(flags, "max-total-tokens")]
    if rule.breakable:
        bounds.append(launch.whole(flags, "context-length"))
    return min(bound for bound in bounds if bound is not None)


def _case(inputs: Inputs, rule: Rules, shape: Shape, draft: Shape | None, tp: int, gpu: tuple[int, int]) -> Case:
    flags, residual = inputs.flags, inputs.residual
    algorithm = launch.text(flags, "speculative-algorithm")
    free, total = gpu
    width = _kv_width(flags, "kv-cache-dtype", shape.width)
    target_cell = kv_bytes(shape, tp, width)
    draft_cell = 0
    cell = target_cell
    if draft is not None:
        own = _kv_width(flags, "speculative-draft-kv-cache-dtype", width) if rule.exact_draft else width
        draft_cell = kv_bytes(draft, tp, own)
        chain = algorithm in CHAIN_OR_TREE or algorithm not in EAGLE
        if rule.exact_draft and chain:
            cell += draft_cell
        elif chain or rule.number >= (0, 5, 14):
            cell += -(-target_cell * draft.layers // shape.attention)
    step = defaults.chunk(flags, total, rule, tp)
    context = launch.whole(flags, "context-length") or shape.context or 4096
    asked = launch.whole(flags, "max-running-requests")
    asked = asked if asked is not None or not algorithm else defaults.SPECULATIVE_REQUESTS
    d = tree_width(flags, draft)
    busy = max(min(step, context), (asked or 1) * max(1, d))
    queries = (shape.heads * shape.head_dim + 2 * shape.kv_heads * shape.head_dim) // tp
    prefills: list[int] = []
    if release.prefill_graph(rule, flags, bool(shape.vision)):
        prefills = defaults.prefill_sizes(_longest_prefill(flags, rule, step))
    graphed = release.decode_graph(rule, flags)
    return Case(
        free=free,
        context=max(0, CONTEXT + residual.get("reserve", 0)),
        weights=max(0, _weights(inputs.target, shape, flags, tp, False) + residual.get("weights", 0)),
        draft=0
        if draft is None or inputs.draft is None
        else max(0, _weights(inputs.draft, draft, flags, tp, True) + residual.get("draft", 0)),
        draft_inside=rule.draft_inside,
        cell=cell,
        target_cell=target_cell,
        draft_cell=draft_cell,
        activations=busy * shape.width * (3 * shape.inner // tp + 4 * shape.hidden + queries),
        asked=asked,
        context_length=context,
        page=launch.whole(flags, "page-size") or 1,
        cap=launch.whole(flags, "max-total-tokens"),
        slot=slot_bytes(shape, tp, flags),
        sizing=rule.state,
        draft_tokens=d,
        ratio=launch.number(flags, "mamba-full-memory-ratio") or 0.9,
        slots_each=_slots_each(flags, rule, shape, algorithm),
        slots=launch.whole(flags, "max-mamba-cache-size"),
        radix=not launch.on(flags, "disable-radix-cache"),
        halved=rule.number >= (0, 5, 14),
        extra=residual.get("kv pool", 0),
        batch=defaults.largest_batch(flags, total, rule, tp, asked) if graphed else 0,
        padding=not launch.on(flags, "disable-cuda-graph-padding"),
        prefills=len(prefills),
        kept=max(prefills, default=0) * shape.hidden * shape.width if rule.breakable else 0,
        layers=shape.layers,
        draft_layers=draft.layers if draft is not None else 0,
        draft_block=(draft.block or d) if draft is not None else 0,
        vocab=shape.vocab,
        extra_graphs=residual.get("graphs", 0) if graphed or prefills else 0,
    )
