"""The worker: stock DFLASH's drafts, grown into trees before the target verifies them. Subclasses stock.

SGLang 0.5.12, speculative/dflash_worker.py. The draft side stays stock: it runs blocks of `block` tokens, its own graph
included; only the target's pass is `width` rows wide.
"""

from __future__ import annotations

import copy
import logging
import os
import time
from typing import Any

import torch
from sglang.srt.mem_cache.common import alloc_token_slots
from sglang.srt.server_args import get_global_server_args
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.speculative.dflash_utils import resolve_dflash_verify_mask_policy
from sglang.srt.speculative.dflash_worker import DFlashWorker
from sglang.srt.speculative.spec_utils import assign_req_to_token_pool_func

from ddtree_kernels.sglang_plugin import packed, selftest, settings
from ddtree_kernels.sglang_plugin.counters import Counters
from ddtree_kernels.sglang_plugin.ranked import Ranked, rank
from ddtree_kernels.sglang_plugin.settings import Refused
from ddtree_kernels.sglang_plugin.tree import grow
from ddtree_kernels.sglang_plugin.verify_input import DDTreeVerifyInput

logger = logging.getLogger(__name__)
CHUNK = 256
"""rows of one head product: stock's own, so that the chain's tokens come from the same kernel shapes."""


class DDTreeWorker(DFlashWorker):  # type: ignore[misc]
    """As DFlashWorker; constructed by the scheduler with the same arguments."""

    def __init__(self, server_args: Any, **rest: Any) -> None:
        self.settings = settings.read(
            os.environ, server_args.speculative_num_draft_tokens, server_args.speculative_dflash_block_size
        )
        self._ranked: Ranked | None = None
        chain = copy.copy(server_args)
        chain.speculative_algorithm = "DFLASH"
        chain.speculative_num_draft_tokens = self.settings.block
        chain.speculative_eagle_topk = 1
        super().__init__(chain, **rest)
        self._check()
        self.counters = Counters(
            self.settings.mode, self.settings.budget, self.settings.block, getattr(server_args, "ddtree_release", "")
        )
        self._log_every = 25 * max(1, int(server_args.decode_log_interval))
        self._most_graph = getattr(self.model_runner.graph_runner, "max_bs", 0)
        self._tell()
        self._self_test(str(getattr(server_args, "load_format", "")))
        made = self.settings
        logger.info(
            f"Initialized DDTree worker. mode={made.mode}, block_size={made.block}, tree_budget={made.budget}, "
            f"ranks={made.ranks}, graphs={self.model_runner.graph_runner is not None}"
        )

    def _check(self) -> None:
        """What only the loaded models can tell; Refused."""
        runner, made = self.model_runner, self.settings
        name, _ = resolve_dflash_verify_mask_policy(runner.attn_backend)
        if name != "TritonAttnBackend" or getattr(runner.attn_backend, "num_draft_tokens", None) != made.width:
            raise Refused(f"DDTREE refuses: attention backend {name} is not Triton's at a width of {made.width}")
        if hasattr(runner.attn_backend, "update_mamba_state_after_mtp_verify"):
            raise Refused("DDTREE refuses: hybrid targets are not supported: the target keeps a recurrent state")
        if (runner.sliding_window_size or 0) > 0:
            raise Refused(f"DDTREE refuses: the target has a sliding window of {runner.sliding_window_size} tokens")
        for which, its, width in (("target", runner, made.width), ("draft", self.draft_model_runner, made.block)):
            graphs = its.graph_runner
            if graphs is not None and graphs.num_tokens_per_bs != width:
                raise Refused(f"DDTREE refuses: the {which}'s graphs are {graphs.num_tokens_per_bs} rows, not {width}")
        if int(self.block_size) != made.block:
            raise Refused(f"DDTREE refuses: the draft runs blocks of {self.block_size}, not {made.block}")
        head = getattr(runner.model, "lm_head", None)
        added = getattr(getattr(head, "shard_indices", None), "num_added_elements", 0)
        if added:
            raise Refused(f"DDTREE refuses: the target's head has {added} added tokens, which is not supported")

    def _self_test(self, load_format: str) -> None:
        made = self.settings
        if made.break_mask:
            logger.warning("DDTREE: %s is set: every node sees all before it; only for tests", settings.BREAK_MASK)
        if made.break_mask == "serve":
            return
        vocabulary = int(self.model_runner.model_config.vocab_size)
        said, sibling, child = selftest.run(self.model_runner, made.width, vocabulary, made.break_mask == "start")
        if said == "?" and load_format == "dummy":
            logger.warning("DDTREE self-test: with dummy weights no node depends on another; the mask was not tested")
            return
        if said == "?":
            said = "the self-test cannot tell whether the mask is applied: a node does not depend on its parent"
        if said:
            raise Refused(f"DDTREE refuses: {said}")
        logger.info("DDTREE self-test passed: a sibling moves a node by %.3g, its parent by %.3g", sibling, child)

    def _tell(self) -> None:
        """The `ddtree` section of server info: the scheduler dumps every attribute of the global arguments."""
        get_global_server_args().ddtree = self.counters.section()

    def _greedy_sample_from_vocab_parallel_head(
        self, *, hidden_states: torch.Tensor, lm_head: Any, chunk_size: int = CHUNK
    ) -> torch.Tensor:
        """As stock's; keeps the best tokens of every position for the tree."""
        weight = lm_head.weight
        head = weight[: int(lm_head.shard_indices.num_org_elements)]
        ranks = min(self.settings.ranks, head.shape[0])
        parts = []
        for hidden in hidden_states.split(chunk_size):
            parts.append(rank(torch.matmul(hidden.to(weight.dtype), head.T), ranks))
        found = Ranked(torch.cat([p.log_probs for p in parts]), torch.cat([p.ids for p in parts]))
        self._ranked = found
        return found.ids[:, 0]

    def _prepare_for_speculative_decoding(self, batch: Any, draft_input: Any) -> None:
        """As stock's, which drafts a chain and reserves its slots; then the tree around it."""
        began = time.perf_counter()
        self._ranked = None
        super()._prepare_for_speculative_decoding(batch, draft_input)
        ranked, self._ranked = self._ranked, None
        if ranked is None or not isinstance(batch.spec_info, DFlashVerifyInput):
            return  # a prefill, or nothing to do
        self._grow(batch, ranked, began)

    def _grow(self, batch: Any, ranked: Ranked, began: float) -> None:
        made, count = self.settings, batch.batch_size()
        log_probs, ids = ranked.to_lists(count)
        drafted = time.perf_counter()
        # the root's token stays on the device: no walk reads it
        trees = [grow(0, rows, names, made.budget) for rows, names in zip(log_probs, ids, strict=True)]
        grown = time.perf_counter()
        up = packed.upload(trees, batch.seq_lens.device)
        chain = batch.spec_info.draft_token.view(count, made.block)
        tokens = torch.cat((chain[:, :1], up.tokens[:, 1:]), dim=1).view(-1)
        prefix = int(batch.seq_lens_cpu.sum())
        visible = packed.causal(count, made.width, up.tokens.device) if made.break_mask else up.visible
        batch.input_ids = tokens
        batch.out_cache_loc = self._reserve(batch, count)
        batch.spec_info = DDTreeVerifyInput(
            draft_token=tokens,
            positions=(batch.seq_lens[:, None].to(torch.int64) + up.depths).view(-1),
            draft_token_num=made.width,
            custom_mask=packed.flat_mask(visible, batch.seq_lens, prefix),
            trees=trees,
            spine=made.spine,
            mode=made.mode,
            counters=self.counters,
        )
        self._fit_graph(prefix, count)
        sent = time.perf_counter()
        batch.spec_info.seconds = {"draft": drafted - began, "grow": grown - drafted, "upload": sent - grown}
        batch.spec_info.sent = sent

    def _reserve(self, batch: Any, count: int) -> torch.Tensor:
        """Slots of all rows [count * width]: stock's for the chain, and more for the rest, at the positions behind."""
        made = self.settings
        chain = batch.out_cache_loc.view(count, made.block)
        more = made.width - made.block
        if not more:
            return batch.out_cache_loc
        extra = alloc_token_slots(batch.tree_cache, count * more)
        assign_req_to_token_pool_func(
            batch.req_pool_indices,
            batch.req_to_token_pool.req_to_token,
            batch.seq_lens + made.block,
            batch.seq_lens + made.width,
            extra,
            count,
        )
        return torch.cat((chain, extra.view(count, more)), dim=1).view(-1)

    def _fit_graph(self, prefix: int, count: int) -> None:
        """Runs a step eagerly whose mask is larger than the graph's buffer (batch x width x context).

        Only a full batch whose requests all end within `width` of the context limit comes there.
        """
        graphs = self.model_runner.graph_runner
        buffer = self.model_runner.attn_backend.cuda_graph_custom_mask
        if graphs is None or buffer is None:
            return
        width = self.settings.width
        padding = (self._most_graph - count) * width * (width + 1)
        fits = packed.mask_size(prefix, count, width) + max(0, padding) <= buffer.numel()
        graphs.max_bs = self._most_graph if fits else 0

    def forward_batch_generation(self, batch: Any, **kwargs: Any) -> Any:
        """As stock's; the counters go to server info, and now and then to the log."""
        before = self.counters.steps
        result = super().forward_batch_generation(batch, **kwargs)
        if self.counters.steps != before:
            self._tell()
            if self.counters.steps % self._log_every == 0:
                logger.info(self.counters.line())
        return result
