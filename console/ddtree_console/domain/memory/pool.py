"""The arithmetic of one launch at one memory fraction: SGLang's own, step by step. Pure; bytes of one GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ddtree_console.domain.memory import defaults

MiB = 1024**2
# Fitted to real starts; each start corrects them for its own host. Decode and piecewise: the recordings (H200, 0.5.12,
# 28 layers, 48 requests x 16 tokens: 0.86, 0.64 and 0.67 GB). Breakable: two public logs of 0.5.2x, 58 sizes up to 8192
# tokens: Qwen3-30B-A3B 2.7 GB, Qwen3.5-9B 3.85 GB.
LOGITS = 6
"""bytes of a token and word in the graphs: logits as computed (2) and as sampled (4)."""
DECODE_LAYER, PREFILL_LAYER, BREAKABLE_LAYER = int(0.32 * MiB), int(0.42 * MiB), int(0.16 * MiB)
"""a layer's share of one captured size."""
BREAKABLE_KEPT = 1.65
"""hidden states of the largest prefill that a breakable graph keeps of each layer."""


@dataclass(frozen=True)
class Case:
    """A launch in numbers.

    free: of the fullest GPU of the slot. context: CUDA context and libraries before weights are loaded.
    cell: bytes of a token by which the pool is sized; target_cell, draft_cell: what it really takes.
    slot: state of one slot of a hybrid model, 0 without. sizing: as Rules.state. draft_tokens: verified in a step
    (0 without speculation). draft_block: positions that the draft model computes. slots_each: slots that a request
    holds (3, more with extra buffers, 1 without radix cache).
    asked: --max-running-requests as it applies, None for none. extra: of the pool, from a real start.
    prefills: sizes of the prefill graph; kept: bytes of one hidden state of its largest, where it is a breakable one.
    draft_inside: the draft's weights count against the fraction. halved: a request needs two tokens (0.5.14).
    """

    free: int
    context: int
    weights: int
    draft: int
    draft_inside: bool
    cell: int
    target_cell: int
    draft_cell: int
    activations: int
    asked: int | None = None
    context_length: int = 0
    page: int = 1
    cap: int | None = None
    slot: int = 0
    sizing: str = "padded"
    draft_tokens: int = 0
    ratio: float = 0.9
    slots_each: int = 3
    slots: int | None = None
    radix: bool = True
    halved: bool = True
    extra: int = 0
    batch: int = 0
    padding: bool = True
    prefills: int = 0
    kept: int = 0
    layers: int = 0
    draft_layers: int = 0
    draft_block: int = 0
    vocab: int = 0
    extra_graphs: int = 0

    @property
    def ready(self) -> int:
        """Free memory when loading begins: what the fraction is taken of."""
        return max(0, self.free - self.context)


@dataclass(frozen=True)
class Solved:
    """One fraction's outcome. pooled: the pool could be sized. stop: name of the term at which the start ends, '' where
    it starts. left: what nothing takes, below 0 where it is too much."""

    pooled: bool
    tokens: int
    requests: int
    state: int
    kv: int
    draft_kv: int
    graphs: int
    left: int
    stop: str


def _state(case: Case, rest: int) -> tuple[int, int, int]:
    """(slots, requests that they hold, bytes of all state): as handle_max_mamba_cache does."""
    d, s, each = case.draft_tokens, case.slot, case.slots_each if case.radix else 1
    pad = 1 if case.sizing == "padded" else 0
    if case.sizing == "first" and d:
        rest -= s * d * (case.asked or 0)
    share = rest * case.ratio / (1 + case.ratio)
    if case.slots is not None:
        slots = case.slots
    elif not case.radix and case.asked is not None:
        slots = case.asked
    elif case.sizing == "each":
        slots = int(share // (s * (1 + d)))
    elif case.sizing == "first" or not d:
        slots = int((share - pad * s) // s)
    else:
        slots = int((share - pad * s * (1 + d)) // (s * (1 + d / each)))
    held = max(0, slots // each)
    running = held if case.asked is None else min(held, case.asked)
    if case.sizing == "each":
        taken = slots * s * (1 + d)
    elif case.sizing == "first":
        taken = slots * s + s * d * (case.asked or 0)
    else:
        taken = (slots + pad) * s + (running + pad) * d * s * bool(d)
    return slots, held, taken


def _state_of_one(case: Case) -> int:
    """State that must fit before one request runs: what the bar shows where it does not."""
    d, each = case.draft_tokens, case.slots_each if case.radix else 1
    if case.sizing == "first":
        return case.slot * (each + d * (case.asked or 1))
    pad = 1 if case.sizing == "padded" else 0
    return case.slot * ((each + pad) + (1 + pad) * d)


@lru_cache(maxsize=512)
def _sizes(batch: int, running: int, speculative: bool, padding: bool) -> tuple[int, int]:
    found = defaults.decode_sizes(batch, running, speculative, padding)
    return len(found), max(found, default=0)


def graphs(case: Case, requests: int) -> int:
    """Memory of all captured graphs, of target and draft."""
    width = max(1, case.draft_tokens)
    count, largest = _sizes(case.batch, max(0, requests), bool(case.draft_tokens), case.padding)
    decode = largest * width * case.vocab * LOGITS + count * case.layers * DECODE_LAYER if count else 0
    draft = 0
    if count and case.draft_layers:
        # a wider tree verifies more tokens, but the draft model still predicts its block
        draft = largest * max(0, case.draft_block - 1) * case.vocab * LOGITS + count * case.draft_layers * DECODE_LAYER
    layer = BREAKABLE_LAYER if case.kept else PREFILL_LAYER
    prefill = case.prefills * case.layers * layer + int(case.kept * case.layers * BREAKABLE_KEPT)
    return max(0, decode + draft + prefill + case.extra_graphs)


def requests_of(case: Case, tokens: int) -> int:
    """As resolve_max_num_reqs: what was asked for, else by the pool; the state of hybrid models comes on top."""
    estimated = max(min(int(tokens / max(1, case.context_length) * 512), 4096), 2048)
    if case.asked is None:
        return min(estimated, tokens // 2)
    return min(case.asked, tokens // 2 if case.halved else estimated)


def solve(case: Case, fraction: float) -> Solved:
    """What a start with that fraction does."""
    # integers, so that a plan never moves by a rounding of floats
    outside = case.ready - int(case.ready * fraction)
    rest = case.ready - case.weights - outside - (case.draft if case.draft_inside else 0)
    state, held, stop = 0, -1, ""
    if rest <= 0:
        stop = "draft" if case.draft_inside and rest + case.draft > 0 else "weights"
    elif case.slot:
        slots, held, state = _state(case, rest)
        if slots <= 0 or held <= 0 or rest - state <= 0:
            stop, state = "hybrid state", _state_of_one(case)
    pool = rest - state + case.extra
    tokens = 0 if stop else max(0, pool) // case.cell // case.page * case.page
    tokens = tokens if case.cap is None else min(tokens, case.cap // case.page * case.page)
    requests = requests_of(case, tokens) if tokens else 0
    requests = requests if held < 0 else min(requests, held)
    if not stop and (tokens <= 0 or requests <= 0):
        stop = "kv pool"
    kv, draft_kv = tokens * case.target_cell, tokens * case.draft_cell
    taken = graphs(case, requests or case.asked or 1)
    left = case.ready - case.weights - case.draft - state - kv - draft_kv - taken - case.activations
    pooled = not stop
    if pooled and left < 0:
        beside = ((taken, "graphs"), (case.activations, "reserve"), (0 if case.draft_inside else case.draft, "draft"))
        stop = max(beside)[1]
    return Solved(pooled, tokens, max(0, requests), state, kv, draft_kv, taken, left, stop)


def limits(case: Case) -> tuple[float | None, float | None]:
    """(least, greatest) fraction that works, in thousandths; (None, None) where none does."""
    low, high = 0, 1000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if solve(case, middle / 1000).pooled else (middle, high)
    least = high
    low, high = least - 1, 1000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if solve(case, middle / 1000).left >= 0 else (low, middle)
    greatest = low
    # slots and pages are whole: a thousandth more or less may tip them
    while greatest >= least and solve(case, greatest / 1000).stop:
        greatest -= 1
    while least <= greatest and solve(case, least / 1000).stop:
        least += 1
    return (least / 1000, greatest / 1000) if least <= greatest else (None, None)
