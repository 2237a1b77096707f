"""What one verify pass of the target holds, and what comes of it: tokens, slots, lengths, features. Subclasses stock.

SGLang 0.5.12, speculative/dflash_info.py: everything that is not about a tree is as in `DFlashVerifyInput.verify`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from sglang.srt.layers.sampler import apply_custom_logit_processor
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.speculative.spec_utils import assign_req_to_token_pool_func

from ddtree_kernels.sglang_plugin import sampling, slots, walk
from ddtree_kernels.sglang_plugin.counters import Counters
from ddtree_kernels.sglang_plugin.stopwatch import Stopwatch
from ddtree_kernels.sglang_plugin.tree import Nodes


def _renorm() -> tuple[sampling.Renorm, sampling.Renorm]:
    """The kernels of SGLang's own sampler where they are, else plain torch."""
    try:
        from sgl_kernel import top_k_renorm_prob, top_p_renorm_prob
    except ImportError:
        return sampling.keep_top_k, sampling.keep_top_p
    return top_k_renorm_prob, top_p_renorm_prob


@dataclass
class DDTreeVerifyInput(DFlashVerifyInput):  # type: ignore[misc]
    """told: [3, bs, N] int64: tokens, parents, and room for the target's choices. spine: drafted tokens of the chain.
    mode: tree | shadow. kept: once verified, the positions of the committed tokens, whose slots are the batch's.
    seconds: host time by phase. began, sent: of time.perf_counter(), when the round began and when all before the
    target's pass was launched."""

    told: torch.Tensor | None = None
    spine: int = 0
    mode: str = "tree"
    counters: Counters | None = None
    watch: Stopwatch | None = None
    kept: torch.Tensor | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    began: float = 0.0
    sent: float = 0.0

    def verify(
        self, *, batch: Any, logits_output: Any, page_size: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[int]]:
        """As stock's: (new bonus tokens [bs] int64, committed lengths [bs] int32, features of the committed tokens
        [sum of them, F], drafted tokens accepted by each request)."""
        if batch.forward_mode.is_idle():
            none = torch.empty((0,), dtype=torch.int64, device=batch.device)
            return none, none.to(torch.int32), none, []
        width, count = self.draft_token_num, batch.batch_size()
        logits, hidden = logits_output.next_token_logits, logits_output.hidden_states
        if hidden is None or self.told is None or self.counters is None:
            raise RuntimeError("DDTREE: the target gave no features for the draft")
        self._adjust(batch, logits)
        sampling.choose(logits, batch.sampling_info, width, *_renorm(), out=self.told[2].view(-1))
        if self.watch is not None:
            self.watch.mark("target")
        tokens, parents, chosen = self.told.tolist()
        verified = time.perf_counter()
        if self.watch is not None:
            self.counters.measured(self.watch.read())
        paths, newest = self._walk(batch.reqs, [Nodes(*pair) for pair in zip(tokens, parents, strict=True)], chosen)
        walked = time.perf_counter()
        lengths = [len(path) for path in paths]
        kept, freed = slots.split(paths, width)
        # one copy: indices of slots, then committed lengths, then bonus tokens
        sent = torch.tensor([*kept, *freed, *lengths, *newest], dtype=torch.int64).to(logits.device)
        keep, free, ends, bonus = sent.split([len(kept), len(freed), count, count])
        commit = ends.to(torch.int32)
        self._commit(batch, keep, free, commit, lengths)
        features = hidden.view(count * width, -1).index_select(0, keep)
        self.kept = self.positions.index_select(0, keep)
        # spec-v1 decoding has no other use for it, and it aliases the graph's memory
        logits_output.hidden_states = None
        now = time.perf_counter()
        self.seconds.update(verify=verified - self.sent, walk=walked - verified, commit=now - walked)
        return bonus, commit, features, [length - 1 for length in lengths]

    def _adjust(self, batch: Any, logits: torch.Tensor) -> None:
        """Processors, penalties and biases of each request on all its rows, in place, as stock."""
        info, width = batch.sampling_info, self.draft_token_num
        if info is None:
            return
        if info.has_custom_logit_processor:
            apply_custom_logit_processor(logits, info, num_tokens_in_batch=width)
        if info.penalizer_orchestrator.is_required or info.logit_bias is not None:
            penalty = torch.zeros((batch.batch_size(), logits.shape[1]), dtype=torch.float32, device=logits.device)
            info.apply_logits_bias(penalty)
            logits.add_(torch.repeat_interleave(penalty, width, dim=0))

    def _walk(
        self, reqs: Sequence[Any], trees: Sequence[Nodes], chosen: Sequence[Sequence[int]]
    ) -> tuple[list[list[int]], list[int]]:
        """(committed nodes of each request, its newest token). Appends the tokens to the requests, up to a stop."""
        paths, newest = [], []
        for req, tree, target in zip(reqs, trees, chosen, strict=True):
            long, short = walk.tree_path(tree, target), walk.chain_path(tree, target, self.spine)
            path = short if self.mode == "shadow" else long
            by_tree, by_chain = walk.emitted(tree, target, long), walk.emitted(tree, target, short)
            appended = _append(req, by_chain if self.mode == "shadow" else by_tree)
            paths.append(path[:appended])
            newest.append(int(req.output_ids[-1]))
            req.spec_verify_ct += 1
            req.spec_num_correct_drafts += appended - 1
            req.update_spec_correct_drafts_histogram(appended - 1)
            if self.counters is not None:
                ended = bool(req.finished())
                self.counters.see(by_tree, by_chain, appended, ended)
                self.counters.due |= ended
        return paths, newest

    def _commit(
        self, batch: Any, keep: torch.Tensor, free: torch.Tensor, commit: torch.Tensor, lengths: Sequence[int]
    ) -> None:
        """The path's slots at the next positions of each request, all others freed; lengths of requests and batch."""
        loc = batch.out_cache_loc
        batch.token_to_kv_pool_allocator.free(loc[free])
        batch.out_cache_loc = loc[keep]
        for req, length in zip(batch.reqs, lengths, strict=True):
            req.kv_committed_len += length
            req.kv_allocated_len = req.kv_committed_len
        end = batch.seq_lens + commit
        assign_req_to_token_pool_func(
            batch.req_pool_indices,
            batch.req_to_token_pool.req_to_token,
            batch.seq_lens,
            end,
            batch.out_cache_loc,
            len(lengths),
        )
        batch.seq_lens.add_(commit)
        batch.seq_lens_cpu.add_(torch.tensor(lengths, dtype=batch.seq_lens_cpu.dtype))
        batch.seq_lens_sum += sum(lengths)


def _append(req: Any, tokens: Sequence[int]) -> int:
    """Appends until the request is finished; how many. At least one: a request that had finished is in no batch."""
    for count, token in enumerate(tokens, start=1):
        req.output_ids.append(token)
        req.check_finished()
        if req.finished():
            return count
    return len(tokens)
