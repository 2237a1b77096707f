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
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.server_args import get_global_server_args
from sglang.srt.speculative.dflash_utils import resolve_dflash_verify_mask_policy
from sglang.srt.speculative.dflash_worker import DFlashWorker

from ddtree_kernels.sglang_plugin import appending, drafting, grown, packed, selftest, settings
from ddtree_kernels.sglang_plugin.counters import Counters
from ddtree_kernels.sglang_plugin.ranked import Ranked, rank
from ddtree_kernels.sglang_plugin.settings import Refused
from ddtree_kernels.sglang_plugin.stopwatch import Stopwatch
from ddtree_kernels.sglang_plugin.verify_input import DDTreeVerifyInput

logger = logging.getLogger(__name__)
IDLE = 0.1
"""seconds without a round after which the time since the last one is no part of the next."""
TELL = 16
"""steps between two sections of server info while no request ends."""
MOST_WIDTH = 64
"""nodes with their root that `kernel` grows: a node's ancestors are the bits of one 64-bit integer."""
CHUNK = 256
"""rows of one head product: stock's own, so that the chain's tokens come from the same kernel shapes."""


class DDTreeWorker(DFlashWorker):  # type: ignore[misc]
    """As DFlashWorker; constructed by the scheduler with the same arguments."""

    def __init__(self, server_args: Any, **rest: Any) -> None:
        self.settings = settings.read(
            os.environ, server_args.speculative_num_draft_tokens, server_args.speculative_dflash_block_size
        )
        chain = copy.copy(server_args)
        chain.speculative_algorithm = "DFLASH"
        chain.speculative_num_draft_tokens = self.settings.block
        chain.speculative_eagle_topk = 1
        super().__init__(chain, **rest)
        self._check()
        self.counters = Counters(
            self.settings.mode, self.settings.budget, self.settings.block, getattr(server_args, "ddtree_release", "")
        )
        self.watch = Stopwatch(self.device)
        # the kernel holds a tree in one warp's registers, and triton has no CPU
        fits = self.settings.width <= MOST_WIDTH and torch.device(self.device).type == "cuda"
        self._trees = grown.on_device if fits else grown.on_host
        if fits:
            grown.warm(self.settings.spine, self._ranks(), self.settings.budget, self.device)
        self._verified: DDTreeVerifyInput | None = None
        self._stock_append = False
        self._left = time.perf_counter()
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

    def _prepare_for_speculative_decoding(self, batch: Any, draft_input: Any) -> None:
        """Drafts a block, grows the trees and reserves their slots: nothing here waits for the GPU.

        In place of stock's, with its input and its results: the batch is ready for the target's verify pass.
        """
        if batch.forward_mode.is_extend() or batch.forward_mode.is_idle():
            return
        if batch.has_grammar:
            raise RuntimeError("DDTREE: a request with a grammar came through the scheduler, which refuses them")
        began = time.perf_counter()
        between = began - self._left
        self.watch.begin()
        if draft_input.target_hidden.shape[0]:  # committed tokens whose draft KV is not written yet
            self._append_target_hidden_to_draft_kv(batch, draft_input)
        loc = drafting.reserve(batch, self.settings.width)
        hidden = drafting.draft(self, batch, draft_input, loc)
        ranked = self._rank(hidden)
        self.watch.mark("draft")
        drafted = time.perf_counter()
        self._grow(batch, ranked, draft_input.bonus_tokens, loc)
        self.watch.mark("tree")
        sent = time.perf_counter()
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        batch.return_hidden_states = False
        batch.spec_info.seconds = {"between": between if between < IDLE else 0.0, "draft": drafted - began,
                                   "tree": sent - drafted}  # fmt: skip
        batch.spec_info.began, batch.spec_info.sent = began, sent
        self._verified = batch.spec_info

    def _ranks(self) -> int:
        head = self.target_worker.model_runner.model.lm_head
        return min(self.settings.ranks, int(head.shard_indices.num_org_elements))

    def _rank(self, hidden: torch.Tensor) -> Ranked:
        """The best tokens of every drafted position [rows, H], from head products of stock's own shapes."""
        head = self.target_worker.model_runner.model.lm_head
        weight = head.weight[: int(head.shard_indices.num_org_elements)]
        ranks = self._ranks()
        parts = [rank(torch.matmul(part.to(weight.dtype), weight.T), ranks) for part in hidden.split(CHUNK)]
        if len(parts) == 1:
            return parts[0]
        return Ranked(*(torch.cat([getattr(p, name) for p in parts]) for name in ("log_probs", "ids", "first")))

    def _grow(self, batch: Any, ranked: Ranked, bonus: torch.Tensor, loc: torch.Tensor) -> None:
        made, count = self.settings, batch.batch_size()
        prefix = int(batch.seq_lens_cpu.sum())
        trees = self._trees(ranked, bonus, batch.seq_lens, prefix, made.budget)
        mask = trees.mask
        if made.break_mask:
            mask = packed.flat_mask(packed.causal(count, made.width, mask.device), batch.seq_lens, prefix)
        batch.input_ids = trees.tokens
        batch.out_cache_loc = loc.view(-1)
        batch.spec_info = DDTreeVerifyInput(
            draft_token=trees.tokens,
            positions=trees.positions,
            draft_token_num=made.width,
            custom_mask=mask,
            told=trees.told,
            spine=made.spine,
            mode=made.mode,
            counters=self.counters,
            watch=self.watch,
        )
        self._fit_graph(prefix, count)

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

    def _append_target_hidden_to_draft_kv(self, batch: Any, draft_input: Any) -> None:
        """As stock's, which it leaves prefills to, and everything once a round's own way has failed."""
        made = self._verified
        if made is None or made.kept is None or self._stock_append:
            super()._append_target_hidden_to_draft_kv(batch, draft_input)
            return
        try:
            last = int(batch.seq_lens_cpu.max()) - 1
            appending.append(self, draft_input.target_hidden, made.kept, batch.out_cache_loc, last)
        except Exception as error:  # as stock's own: a slower way is left
            logger.warning("DDTREE: the draft's KV is appended as in stock from now on: %s", error)
            self._stock_append = True
            super()._append_target_hidden_to_draft_kv(batch, draft_input)
            return
        draft_input.draft_seq_lens = batch.seq_lens.to(dtype=torch.int32)
        draft_input.ctx_lens = torch.zeros_like(draft_input.ctx_lens)
        draft_input.target_hidden = draft_input.target_hidden[:0]

    def forward_batch_generation(self, batch: Any, **kwargs: Any) -> Any:
        """As stock's; the counters go to server info, and now and then to the log."""
        result = super().forward_batch_generation(batch, **kwargs)
        now = time.perf_counter()
        if self._verified is not None:
            info, self._verified = self._verified, None
            # what is left of the step is the draft's KV of the committed tokens
            known = sum(value for name, value in info.seconds.items() if name != "between")
            self.counters.spent({**info.seconds, "append": now - info.began - known})
            if self.counters.due or self.counters.steps % TELL == 0:
                self._tell()
            if self.counters.steps % self._log_every == 0:
                logger.info(self.counters.line())
        self._left = time.perf_counter()
        return result
