"""The kernel that ends a captured round. Every program finds for itself what is accepted, so none waits for another.

No steps down the tree are needed for that: a node is accepted where it and all its ancestors are what the target chose
after their parents. Each node looks at its own parent at once, and visibility words say which nodes are ancestors.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _chain(
    token: tl.tensor,
    wanted: tl.tensor,
    first: tl.tensor,
    node: tl.tensor,
    step: tl.tensor,
    width: tl.tensor,
    PAD: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Down a tree's first children as far as the target agrees: nodes by step, how many. Parents take no part in it."""
    path = tl.where(step == 0, 0, PAD)
    at = tl.full([], 0, tl.int32)
    count = tl.full([], 1, tl.int32)
    going = count < width
    while going:
        child = tl.sum(tl.where(node == at, first, 0), axis=0)
        want = tl.sum(tl.where(node == at, wanted, 0), axis=0)
        good = tl.sum(((node == child) & (token == want)).to(tl.int32), axis=0) > 0
        path = tl.where((step == count) & good, child, path)
        count += good.to(tl.int32)
        at = child
        going = good & (count < width)
    return path, count


@triton.jit
def _accepted(
    tokens: tl.tensor,
    parents: tl.tensor,
    depths: tl.tensor,
    children: tl.tensor,
    visibility: tl.tensor,
    chosen: tl.tensor,
    nodes: tl.tensor,
    width: tl.tensor,
    KIND: tl.constexpr,
    PAD: tl.constexpr,
    WORDS: tl.constexpr,
    STEPS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Accepted nodes by step, PAD behind them; how many; what the tree would give; whether tree and chain differ.

    KIND: 0 the root alone, 1 a chain, 2 a tree, 3 a tree whose chain counts (as in finish.py).
    """
    node = tl.arange(0, PAD)
    step = tl.arange(0, STEPS)
    real = node < nodes
    wrong = tl.full([], 0, tl.int32)
    if KIND == 0:
        count = tl.full([], 1, tl.int32)
        path = tl.where(step == 0, 0, PAD)
        would = count
    elif KIND == 1:
        token = tl.load(tokens + node, mask=real, other=-1)
        above = tl.load(chosen + node - 1, mask=real & (node > 0), other=-2)
        count = tl.min(tl.where((node > 0) & (token != above), node, nodes), axis=0)
        path = tl.where(step < count, step, PAD)
        would = count
    else:
        token = tl.load(tokens + node, mask=real, other=-1)
        parent = tl.load(parents + node, mask=real, other=-1)
        depth = tl.load(depths + node, mask=real, other=0)
        above = tl.load(chosen + parent, mask=parent >= 0, other=-2)
        fits = (node == 0) | ((parent >= 0) & (token == above))
        missing = tl.zeros([PAD], tl.int64)
        for word in tl.static_range(WORDS):
            bit = tl.where(fits & (node // 64 == word), tl.full([PAD], 1, tl.int64) << (node % 64).to(tl.int64), 0)
            agreed = tl.sum(bit, axis=0)
            missing |= tl.load(visibility + node * WORDS + word, mask=real, other=0) & ~agreed
        taken = fits & (missing == 0)
        would = tl.max(tl.where(taken, depth, 0), axis=0) + 1
        here = taken[:, None] & (depth[:, None] == step[None, :])
        path = tl.min(tl.where(here, node[:, None], PAD), axis=0)
        count = would
        if KIND == 3:
            wanted = tl.load(chosen + node, mask=real, other=-2)
            first = tl.load(children + node, mask=real, other=-1)
            chain, count = _chain(token, wanted, first, node, step, width, PAD)
            wrong = tl.max(((step < count) & (chain != path)).to(tl.int32), axis=0)
            path = chain
    return path, count, would, wrong


@triton.jit
def finish_kernel(
    tokens: tl.tensor,
    parents: tl.tensor,
    depths: tl.tensor,
    children: tl.tensor,
    visibility: tl.tensor,
    chosen: tl.tensor,
    features: tl.tensor,
    pending: tl.tensor,
    addresses: tl.tensor,
    began: tl.tensor,
    rows: tl.tensor,
    turn: tl.tensor,
    length: tl.tensor,
    before: tl.tensor,
    root: tl.tensor,
    nodes: tl.tensor,
    width: tl.tensor,
    columns: tl.tensor,
    blocks: tl.tensor,
    units: tl.tensor,
    moves: tl.tensor,
    capacity: tl.tensor,
    KIND: tl.constexpr,
    SLOTS: tl.constexpr,
    PAD: tl.constexpr,
    WORDS: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
    UNITS: tl.constexpr,
    BYTES: tl.constexpr,
) -> None:
    """Program 0: output row and place. The next width * blocks: one block of one accepted node's features each. The
    rest: accepted rows of one cache, UNITS columns of BYTES each; all are read before one is written."""
    program = tl.program_id(0)
    path, count, would, wrong = _accepted(
        tokens, parents, depths, children, visibility, chosen, nodes, width, KIND, PAD, WORDS, STEPS
    )
    step = tl.arange(0, STEPS)
    if program == 0:
        # all loads before the first store, so that they wait together
        number, old = tl.load(turn), tl.load(length)
        token = tl.load(chosen + path, mask=step < count, other=0)
        output = rows + number % SLOTS * (width + 3)
        tl.store(output + step, token, mask=step < width)
        tl.store(output + width, count.to(tl.int64))
        tl.store(output + width + 1, would.to(tl.int64))
        tl.store(output + width + 2, wrong.to(tl.int64))
        tl.store(turn, number + 1)
        tl.store(before, old)
        tl.store(length, old + count)
        # the token chosen after an accepted node is the next node's, and after the last one the next root
        tl.store(root, tl.sum(tl.where(step == count - 1, token, 0), axis=0))
    elif program <= width * blocks:
        one = (program - 1) // blocks
        if one < count:
            node = tl.sum(tl.where(step == one, path, 0), axis=0).to(tl.int64)
            column = (program - 1) % blocks * BLOCK + tl.arange(0, BLOCK)
            value = tl.load(features + node * columns + column, mask=column < columns)
            tl.store(pending + one.to(tl.int64) * columns + column, value, mask=column < columns)
    elif KIND >= 2:
        index = program - 1 - width * blocks
        base = tl.load(addresses + index // moves)
        start = tl.load(began)
        if BYTES == 8:
            cache = base.to(tl.pointer_type(tl.int64))
        elif BYTES == 4:
            cache = base.to(tl.pointer_type(tl.int32))
        else:
            cache = base.to(tl.pointer_type(tl.int16))
        column = index % moves * UNITS + tl.arange(0, UNITS)
        moved = (step < count) & (path > step) & (start + path < capacity)
        mask = moved[:, None] & (column < units)[None, :]
        found = tl.load(cache + (start + path)[:, None] * units + column[None, :], mask=mask)
        tl.debug_barrier()
        tl.store(cache + (start + step)[:, None] * units + column[None, :], found, mask=mask)
