"""A target and a draft that are arithmetic on tokens, with KV pools that remember what was written where.

The target's next token is a function of the whole sequence, which it reads from the pool through `req_to_token` and
through the mask, never from the request: a wrong slot, mask, position or feature gives other tokens.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.sglang_plugin.stubs import CaptureHiddenMode, ForwardMode, Holder, ModelWorkerBatch, ScheduleBatch

VOCABULARY = 48
STOP = 7
SPREAD = torch.arange(1, VOCABULARY + 1, dtype=torch.int64) * 7919


def mixed(tokens: Sequence[int], salt: int = 0) -> int:
    """A stable number of a sequence."""
    return zlib.crc32(bytes(f"{salt}:{','.join(map(str, tokens))}", "ascii"))


def logits(tokens: Sequence[int]) -> torch.Tensor:
    """[V] float32 of the target after this sequence."""
    return ((mixed(tokens) * SPREAD) % 100_003).float() / 10_000


def greedy(tokens: Sequence[int]) -> int:
    """The target's own next token."""
    return int(logits(tokens).argmax())


def drafted(tokens: Sequence[int], block: int) -> torch.Tensor:
    """[block, V]: what the draft says of the next positions: right at rank 0 in six of ten cases, rank 1 in three."""
    rows, path = [torch.zeros(VOCABULARY)], list(tokens)
    for position in range(1, block):
        noise = ((mixed(tokens, position) * SPREAD) % 9973).float() / 9973
        right, luck = greedy(path), mixed(path, 77) % 10
        if luck < 6:
            noise[right] = 3.0
        elif luck < 9:
            noise[(right + 1) % VOCABULARY], noise[right] = 3.0, 2.5
        rows.append(noise)
        path.append(right)
    return torch.stack(rows)


class Pool:
    """KV of one model: what was written to each slot. lost: slots whose content nobody may read any more."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[int, int]] = {}


@dataclass
class Target:
    """Stands in for the target's worker and runner. ignores_mask: verifies a tree as a chain, as FA3 would."""

    allocator: Any
    table: torch.Tensor
    width: int
    ignores_mask: bool = False
    pool: Pool = field(default_factory=Pool)
    eager: int = 0

    device = "cpu"
    sliding_window_size = spec_algorithm = None
    tokenizer = None

    def __post_init__(self) -> None:
        self.model_runner = self
        self.req_to_token_pool = Holder(req_to_token=self.table)
        self.token_to_kv_pool_allocator = self.allocator
        self.token_to_kv_pool = self.memory_pool_config = None
        self.model_config = Holder(vocab_size=VOCABULARY, context_len=self.table.shape[1])
        self.attn_backend = type("TritonAttnBackend", (), {})()
        self.attn_backend.num_draft_tokens = self.width
        self.attn_backend.cuda_graph_custom_mask = torch.zeros(4 * self.width * 400, dtype=torch.uint8)
        self.graph_runner = Holder(num_tokens_per_bs=self.width, max_bs=4)
        shard = Holder(num_org_elements=VOCABULARY, num_org_elements_padded=VOCABULARY, num_added_elements=0,
                       org_vocab_start_index=0, added_vocab_start_index=VOCABULARY)  # fmt: skip
        head = Holder(weight=torch.eye(VOCABULARY), shard_indices=shard)
        self.model = Holder(lm_head=head, get_input_embeddings=lambda: lambda ids: ids[..., None].float())

    def get_memory_pool(self) -> tuple[Any, Any]:
        """As TpModelWorker's."""
        return self.req_to_token_pool, self.allocator

    def sequence(self, row: int, length: int) -> list[int]:
        """Tokens of a request, read from the pool through its slots; positions must be consecutive."""
        found = [self.pool.held[int(slot)] for slot in self.table[row, :length]]
        assert [position for _, position in found] == list(range(length)), "KV of another position"
        return [token for token, _ in found]

    def forward(self, batch: Any) -> Any:
        """A verify pass: logits and features [rows, ..] of every node, its KV written to out_cache_loc."""
        self.eager += batch.batch_size > self.graph_runner.max_bs
        width = batch.spec_info.draft_token_num
        rows, features, at = [], [], 0
        for i in range(batch.batch_size):
            prefix = int(batch.seq_lens[i])
            before = self.sequence(int(batch.req_pool_indices[i]), prefix)
            span = slice(i * width, (i + 1) * width)
            tokens, positions = batch.input_ids[span].tolist(), batch.positions[span].tolist()
            for slot, token, position in zip(batch.out_cache_loc[span].tolist(), tokens, positions, strict=True):
                self.pool.held[slot] = (token, position)
            mask = batch.spec_info.custom_mask
            if mask is None:
                seen = torch.ones(width, width, dtype=torch.bool).tril()
            else:
                size = width * (prefix + width)
                seen = mask[at : at + size].view(width, prefix + width)[:, prefix:]
                at += size
            if self.ignores_mask:
                seen = torch.ones(width, width, dtype=torch.bool).tril()
            for node in range(width):
                columns = [c for c in range(width) if bool(seen[node, c])]
                rows.append(logits([*before, *(tokens[c] for c in columns)]))
                features.append(torch.tensor([float(tokens[node]), float(positions[node])]))
        output = Holder(next_token_logits=torch.stack(rows), hidden_states=torch.stack(features))
        return Holder(logits_output=output, can_run_graph=True)

    def forward_batch_generation(self, batch: Any, is_verify: bool = False) -> Any:
        """As TpModelWorker's: a verify pass, or a prefill."""
        if is_verify:
            output = self.forward(batch).logits_output
            return Holder(logits_output=output, can_run_cuda_graph=True, next_token_ids=None)
        next_ids, features, at = [], [], 0
        for row, length in zip(batch.req_pool_indices.tolist(), batch.extend_seq_lens, strict=True):
            for position, token in enumerate(batch.input_ids[at : at + length].tolist()):
                self.pool.held[int(self.table[row, position])] = (token, position)
                features.append([float(token), float(position)])
            next_ids.append(greedy(batch.input_ids[at : at + length].tolist()))
            at += length
        output = Holder(next_token_logits=None, hidden_states=torch.tensor(features))
        return Holder(logits_output=output, next_token_ids=torch.tensor(next_ids), can_run_cuda_graph=False)


class Draft:
    """Stands in for TpModelWorker where the stock worker makes its draft runner; knows the target it drafts for."""

    target: Target

    def __init__(self, **given: Any) -> None:
        args = given["server_args"]
        assert args.speculative_algorithm == "DFLASH"
        self.block = args.speculative_num_draft_tokens
        self.pool = Pool()
        self.model_runner = self
        self.token_to_kv_pool = self
        self.token_to_kv_pool_allocator = given["token_to_kv_pool_allocator"]
        self.req_to_token_pool = given["req_to_token_pool"]
        self.attn_backend = None
        self.graph_runner = Holder(num_tokens_per_bs=self.block, max_bs=4)
        self.model_config = Holder(hf_config={"dflash_config": {"mask_token_id": 0}, "block_size": self.block})

        def turned(positions: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            """A feature says of which position it is."""
            assert positions.tolist() == k.view(-1, 2)[:, 1].tolist()
            return k

        attention = Holder(
            kv_proj_only=lambda h: (h, h), apply_k_norm=lambda k: k, apply_k_rope=turned,
            num_kv_heads=1, head_dim=2, attn=Holder(k_scale=None, v_scale=None),
        )  # fmt: skip
        self.model = Holder(layers=[Holder(self_attn=attention)], project_target_hidden=lambda h: h, block_size=None)

    def set_kv_buffer(self, layer: Any, loc: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *scales: Any) -> None:
        """The draft's KV of committed tokens, made of the target's features."""
        for slot, (token, position) in zip(loc.tolist(), k.view(-1, 2).tolist(), strict=True):
            self.pool.held[slot] = (int(token), int(position))

    def forward(self, batch: Any) -> Any:
        """A block of each request; its hidden states are the logits."""
        blocks = []
        for i in range(batch.batch_size):
            row, length = int(batch.req_pool_indices[i]), int(batch.seq_lens[i])
            mine = [self.pool.held[int(slot)] for slot in batch.req_to_token_pool.req_to_token[row, :length]]
            assert [p for _, p in mine] == list(range(length)), "the draft's KV is of another position"
            root = int(batch.input_ids[i * self.block])
            blocks.append(drafted([*(t for t, _ in mine), root], self.block))
        return Holder(logits_output=Holder(hidden_states=torch.cat(blocks)))


class Request:
    """As stock's Req, as far as a worker touches it."""

    def __init__(self, prompt: Sequence[int], most: int, row: int) -> None:
        self.origin_input_ids, self.most, self.row = list(prompt), most, row
        self.output_ids: list[int] = []
        self.grammar = None
        self.finished_reason = ""
        self.kv_committed_len = self.kv_allocated_len = len(prompt)
        self.spec_verify_ct = self.spec_num_correct_drafts = 0
        self.histogram: dict[int, int] = {}

    def finished(self) -> bool:
        """As stock's."""
        return bool(self.finished_reason)

    def check_finished(self) -> None:
        """A stop token or the most tokens."""
        if self.output_ids[-1] == STOP or len(self.output_ids) >= self.most:
            self.finished_reason = "stop" if self.output_ids[-1] == STOP else "length"

    def update_spec_correct_drafts_histogram(self, count: int) -> None:
        """As stock's."""
        self.histogram[count] = self.histogram.get(count, 0) + 1


class Batch(ScheduleBatch):
    """As stock's ScheduleBatch of a decode step, as far as a worker touches it."""

    def __init__(self, target: Target, reqs: list[Request], info: Any = None) -> None:
        self.target, self.reqs, self.sampling_info = target, reqs, info
        self.device, self.has_grammar, self.return_logprob, self.return_hidden_states = "cpu", False, False, False
        self.is_extend_in_batch, self.forward_mode = False, ForwardMode.DECODE
        self.tree_cache = Holder(token_to_kv_pool_allocator=target.allocator)
        self.token_to_kv_pool_allocator, self.req_to_token_pool = target.allocator, target.req_to_token_pool
        self.spec_info: Any = None
        self.input_ids = self.out_cache_loc = torch.empty(0, dtype=torch.int64)
        self.set_reqs(reqs)

    def set_reqs(self, reqs: list[Request]) -> None:
        """Lengths and rows of these requests."""
        self.reqs = reqs
        self.req_pool_indices = torch.tensor([r.row for r in reqs], dtype=torch.int64)
        self.seq_lens = torch.tensor([r.kv_committed_len for r in reqs], dtype=torch.int32)
        self.seq_lens_cpu = self.seq_lens.clone().long()
        self.seq_lens_sum = int(self.seq_lens.sum())

    def batch_size(self) -> int:
        """Requests."""
        return len(self.reqs)

    def get_model_worker_batch(self) -> ModelWorkerBatch:
        """What the target gets."""
        extends = [len(r.origin_input_ids) for r in self.reqs] if self.forward_mode.is_extend() else None
        return ModelWorkerBatch(
            forward_mode=self.forward_mode, batch_size=len(self.reqs), input_ids=self.input_ids,
            positions=getattr(self.spec_info, "positions", None), seq_lens=self.seq_lens, spec_info=self.spec_info,
            out_cache_loc=self.out_cache_loc, req_pool_indices=self.req_pool_indices, extend_seq_lens=extends,
            extend_prefix_lens=[0] * len(self.reqs) if extends else None, capture_hidden_mode=CaptureHiddenMode.FULL,
        )  # fmt: skip
