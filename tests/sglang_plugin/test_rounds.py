"""Whole rounds: the stock worker of the wheel and ours over it, on a simulated target and draft with real slots."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ddtree_kernels.sglang_plugin import grown
from ddtree_kernels.sglang_plugin.settings import Refused
from tests.sglang_plugin.simulated import STOP, VOCABULARY, Batch, Draft, Request, Target, greedy, logits
from tests.sglang_plugin.stubs import ForwardMode, Holder, stock_modules

BLOCK, SLOTS, ROWS, CONTEXT = 5, 900, 4, 400


@pytest.fixture
def modules(stock: Path) -> Iterator[SimpleNamespace]:
    """Stock's modules and ours over them."""
    with stock_modules(stock, Draft) as found:
        yield found


class Service:
    """A scheduler in small: rows, prefill, decode, finish, abort, retraction."""

    def __init__(self, modules: SimpleNamespace, env: dict[str, str], width: int, **target: Any) -> None:
        self.modules = modules
        self.allocator = modules.allocator(SLOTS, torch.float32, "cpu", None, False)
        self.target = Target(self.allocator, torch.zeros((ROWS, CONTEXT), dtype=torch.int32), width, **target)
        args = Holder(
            speculative_algorithm="DDTREE" if env else "DFLASH",
            speculative_num_draft_tokens=width,
            speculative_dflash_block_size=BLOCK,
            speculative_eagle_topk=1,
            speculative_draft_window_size=None,
            speculative_draft_attention_backend=None,
            page_size=1,
            decode_log_interval=40,
            load_format="auto",
            get_attention_backends=lambda: ("triton", "triton"),
        )
        modules.set_args(args)
        self.args = args
        names = ("gpu_id", "tp_rank", "moe_ep_rank", "attn_cp_rank", "moe_dp_rank", "nccl_port")
        given: dict[str, Any] = {**dict.fromkeys(names, 0), "dp_rank": None, "target_worker": self.target}
        self.worker = (modules.ddtree if env else modules.dflash)(server_args=args, **given)
        self.batch: Batch | None = None
        self.free_rows = list(range(ROWS))
        self.rounds: list[int] = []

    def start(self, prompt: list[int], most: int) -> Request:
        """Prefills a request and joins it to the running batch."""
        row = self.free_rows.pop()
        req = Request(prompt, most, row)
        loc = self.allocator.alloc(len(prompt))
        self.target.table[row, : len(prompt)] = loc.to(torch.int32)
        batch = Batch(self.target, [req])
        batch.forward_mode, batch.input_ids, batch.out_cache_loc = ForwardMode.EXTEND, torch.tensor(prompt), loc
        result = self.worker.forward_batch_generation(batch)
        req.output_ids.append(int(result.next_token_ids[0]))
        req.check_finished()
        if req.finished():
            self.release(req)
        elif self.batch is None:
            batch.forward_mode = ForwardMode.DECODE
            self.batch = batch
        else:
            self.batch.spec_info.merge_batch(batch.spec_info)
            self.batch.set_reqs([*self.batch.reqs, req])
        return req

    def release(self, req: Request) -> None:
        """A request's slots go back, as release_kv_cache does."""
        self.allocator.free(self.target.table[req.row, : req.kv_allocated_len].long())
        self.free_rows.append(req.row)

    def drop(self, gone: list[Request]) -> None:
        """Takes requests out of the batch."""
        assert self.batch is not None
        for req in gone:
            self.release(req)
        kept = [i for i, r in enumerate(self.batch.reqs) if r not in gone]
        if not kept:
            self.batch = None
            return
        self.batch.spec_info.filter_batch(torch.tensor(kept))
        self.batch.set_reqs([self.batch.reqs[i] for i in kept])

    def step(self) -> None:
        """One round; then what must hold of slots, and the finished leave."""
        assert self.batch is not None
        self.batch.forward_mode = ForwardMode.DECODE
        result = self.worker.forward_batch_generation(self.batch)
        assert result.num_correct_drafts == sum(result.num_correct_drafts_per_req_cpu)
        self.rounds += [n + 1 for n in result.num_correct_drafts_per_req_cpu]
        for req, token in zip(self.batch.reqs, result.next_token_ids.tolist(), strict=True):
            text = [*req.origin_input_ids, *req.output_ids]
            length = req.kv_committed_len
            assert length == len(text) - 1 == req.kv_allocated_len and token == text[-1]
            # the target's KV and the draft's, through the slots of the request
            assert self.target.sequence(req.row, length) == text[:-1]
            slots = self.target.table[req.row, :length].tolist()
            mine = [self.worker.draft_worker.pool.held[s] for s in slots]
            assert mine == [(t, p) for p, t in enumerate(text[:-1])]
        assert not getattr(self.worker, "_stock_append", False), "the round's own way of appending failed"
        self.no_leak()
        self.drop([r for r in self.batch.reqs if r.finished()])

    def no_leak(self) -> None:
        """Every slot is free once, or held by one request."""
        held = [int(s) for r in (self.batch.reqs if self.batch else []) for s in
                self.target.table[r.row, : r.kv_allocated_len]]  # fmt: skip
        assert sorted([*self.allocator.free_pages.tolist(), *held]) == list(range(1, SLOTS + 1))


def alone(prompt: list[int], most: int) -> list[int]:
    """What the target says by itself."""
    text = list(prompt)
    while len(text) - len(prompt) < most:
        text.append(greedy(text))
        if text[-1] == STOP:
            break
    return text[len(prompt) :]


def prompts(count: int, seed: int) -> list[list[int]]:
    """Prompts of 1 to 12 tokens."""
    rng = random.Random(seed)
    return [[rng.randrange(8, VOCABULARY) for _ in range(rng.randint(1, 12))] for _ in range(count)]


def served(service: Service, asked: list[list[int]], most: int) -> list[Request]:
    """Serves them all, at most ROWS at a time."""
    waiting, all_of_them = list(asked), []
    while waiting or service.batch is not None:
        while waiting and service.free_rows:
            all_of_them.append(service.start(waiting.pop(0), most))
        if service.batch is not None:
            service.step()
    return all_of_them


@pytest.fixture
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """DDTREE_* of a case, in the environment."""
    env = dict(request.param)
    for name in ("DDTREE_MODE", "DDTREE_BUDGET", "DDTREE_TOPK", "DDTREE_TEST_BREAK_MASK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return env


MODES = [{"DDTREE_MODE": "tree"}, {"DDTREE_MODE": "shadow"}]


@pytest.mark.parametrize("environment", MODES, indirect=True, ids=["tree", "shadow"])
@pytest.mark.parametrize("width", [BLOCK, 22])
def test_tokens_are_the_targets_own(modules: SimpleNamespace, environment: dict[str, str], width: int) -> None:
    service = Service(modules, environment, width)
    asked = prompts(8, width)
    requests = served(service, asked, 25)
    assert [r.output_ids for r in requests] == [alone(p, 25) for p in asked]
    assert len(service.allocator.free_pages) == SLOTS
    told = service.args.ddtree
    assert (told["shorter_rounds"], told["astray_rounds"]) == (0, 0) and told["rounds"] == len(service.rounds)
    assert told["accept_length"] == pytest.approx(sum(service.rounds) / len(service.rounds), abs=1e-3)
    assert told["tree_length"] >= told["chain_length"] and (told["gained"] > 0) is (width > BLOCK)
    for req in requests:
        assert req.spec_num_correct_drafts == sum(k * v for k, v in req.histogram.items())
        assert req.spec_verify_ct == sum(req.histogram.values())
        # meta_info's accept length divides tokens by verify passes; the first token is the prefill's
        assert len(req.output_ids) - 1 == req.spec_num_correct_drafts + req.spec_verify_ct


@pytest.mark.parametrize("environment", [{"DDTREE_MODE": "tree"}], indirect=True)
def test_trees_grown_by_the_kernel(modules: SimpleNamespace, environment: dict[str, str]) -> None:
    service = Service(modules, environment, 9)
    service.worker._trees = grown.on_device  # here under the interpreter
    asked = prompts(3, 5)
    assert [r.output_ids for r in served(service, asked, 10)] == [alone(p, 10) for p in asked]
    assert service.args.ddtree["gained"] > 0


@pytest.mark.parametrize("environment", [{"DDTREE_MODE": "shadow"}], indirect=True)
def test_shadow_is_stock_round_by_round(modules: SimpleNamespace, environment: dict[str, str]) -> None:
    asked = prompts(6, 3)
    ours = Service(modules, environment, 20)
    a = served(ours, asked, 25)
    told = ours.args.ddtree
    stock = Service(modules, {}, BLOCK)
    b = served(stock, asked, 25)
    assert [r.output_ids for r in a] == [r.output_ids for r in b] and ours.rounds == stock.rounds
    assert told["mode"] == "shadow" and told["accept_length"] == pytest.approx(
        sum(stock.rounds) / len(stock.rounds), abs=1e-3
    )


@pytest.mark.parametrize("environment", [{"DDTREE_MODE": "tree"}], indirect=True)
def test_the_tree_saves_what_the_shadow_said(modules: SimpleNamespace, environment: dict[str, str]) -> None:
    asked = prompts(6, 3)
    tree, chain = Service(modules, environment, 20), Service(modules, {}, BLOCK)
    served(tree, asked, 25)
    served(chain, asked, 25)
    assert len(tree.rounds) < len(chain.rounds) and sum(tree.rounds) == sum(chain.rounds)


@pytest.mark.parametrize("environment", MODES, indirect=True, ids=["tree", "shadow"])
def test_abort_and_retraction_leak_nothing(modules: SimpleNamespace, environment: dict[str, str]) -> None:
    service = Service(modules, environment, 16)
    rng, waiting = random.Random(9), prompts(14, 4)
    everyone: list[Request] = []
    dropped = 0
    while waiting or service.batch is not None:
        while waiting and service.free_rows:
            everyone.append(service.start(waiting.pop(), 25))
        if service.batch is not None:
            service.step()
        if service.batch is not None and rng.random() < 0.4:
            victim = rng.choice(service.batch.reqs)
            service.drop([victim])
            service.no_leak()
            dropped += 1
            if rng.random() < 0.5 and len(victim.origin_input_ids) < 60:  # retracted: it comes back with what it has
                waiting.append([*victim.origin_input_ids, *victim.output_ids])
    assert len(service.allocator.free_pages) == SLOTS and len(service.free_rows) == ROWS
    assert dropped >= 5 and sum(r.finished() for r in everyone) >= 5
    for req in everyone:
        text = [*req.origin_input_ids, *req.output_ids]
        assert all(text[i] == greedy(text[:i]) for i in range(len(req.origin_input_ids), len(text)))


@pytest.mark.parametrize("environment", [{"DDTREE_MODE": "tree"}], indirect=True)
def test_where_appending_fails_stock_goes_on(modules: SimpleNamespace, environment: dict[str, str]) -> None:
    service = Service(modules, environment, 16)
    asked = prompts(3, 4)
    req = service.start(asked[0], 25)
    assert service.batch is not None
    service.worker._fused_kv_helper = Holder(rotary_emb=Holder(cos_sin_cache=torch.zeros(1, 2)))
    service.worker._use_fused_kv_materialize = True
    service.batch.forward_mode = ForwardMode.DECODE
    service.worker.forward_batch_generation(service.batch)
    assert service.worker._stock_append and not service.worker._use_fused_kv_materialize  # stock's own falls back too
    service.worker._stock_append = False
    service.drop([r for r in service.batch.reqs if r.finished()])
    while service.batch is not None:
        service.step()
    assert req.output_ids == alone(asked[0], 25)


@pytest.mark.parametrize("environment", [{"DDTREE_MODE": "tree"}], indirect=True)
def test_a_bias_holds_at_every_node(modules: SimpleNamespace, environment: dict[str, str]) -> None:
    """Every request forbids the stop token and what the target likes best at first; none of it comes out."""
    service = Service(modules, environment, 16)
    prompt = prompts(1, 6)[0]
    bias = torch.zeros(VOCABULARY)
    bias[[STOP, *alone(prompt, 6)[1:]]] = -100.0
    info = Holder(
        is_all_greedy=True, has_custom_logit_processor=False, penalizer_orchestrator=Holder(is_required=False),
        logit_bias=bias, apply_logits_bias=lambda rows: rows.add_(bias),
    )  # fmt: skip
    req = service.start(prompt, 20)
    assert service.batch is not None
    service.batch.sampling_info = info
    while service.batch is not None:
        service.step()
    text = [*prompt, *req.output_ids]
    for at in range(len(prompt) + 1, len(text)):
        assert text[at] == int((logits(text[:at]) + bias).argmax())


@pytest.mark.parametrize("environment", [{"DDTREE_MODE": "tree"}], indirect=True)
def test_a_backend_that_ignores_the_mask_is_refused(modules: SimpleNamespace, environment: dict[str, str]) -> None:
    with pytest.raises(Refused, match="DDTREE refuses: the attention backend ignores the tree's mask"):
        Service(modules, environment, 12, ignores_mask=True)


@pytest.mark.parametrize("environment", [{"DDTREE_TEST_BREAK_MASK": "start"}], indirect=True)
def test_the_negative_control_fails_the_self_test(modules: SimpleNamespace, environment: dict[str, str]) -> None:
    with pytest.raises(Refused, match="ignores the tree's mask"):
        Service(modules, environment, 12)


@pytest.mark.parametrize("environment", [{"DDTREE_TEST_BREAK_MASK": "serve"}], indirect=True)
def test_the_negative_control_gives_other_tokens(modules: SimpleNamespace, environment: dict[str, str]) -> None:
    service = Service(modules, environment, 20)
    asked = prompts(6, 3)
    assert [r.output_ids for r in served(service, asked, 30)] != [alone(p, 30) for p in asked]


@pytest.mark.parametrize("environment", [{"DDTREE_MODE": "tree"}], indirect=True)
def test_a_mask_over_the_graphs_buffer_runs_eagerly(modules: SimpleNamespace, environment: dict[str, str]) -> None:
    service = Service(modules, environment, 12)
    service.target.attn_backend.cuda_graph_custom_mask = torch.zeros(12 * 70, dtype=torch.uint8)
    asked = prompts(4, 8)
    assert [r.output_ids for r in served(service, asked, 30)] == [alone(p, 30) for p in asked]
    assert service.target.eager > 0 and service.target.graph_runner.max_bs in (0, 4)


@pytest.mark.parametrize("environment", [{"DDTREE_MODE": "tree"}], indirect=True)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: setattr(t, "sliding_window_size", 4096), "sliding window of 4096"),
        (lambda t: setattr(t.attn_backend, "update_mamba_state_after_mtp_verify", 1), "hybrid targets"),
        (lambda t: setattr(t.attn_backend, "num_draft_tokens", 5), "is not Triton's at a width of 12"),
        (
            lambda t: setattr(t, "attn_backend", type("FlashAttentionBackend", (), {})()),
            "backend FlashAttentionBackend",
        ),
        (lambda t: setattr(t.graph_runner, "num_tokens_per_bs", 5), "the target's graphs are 5 rows, not 12"),
        (lambda t: setattr(t.model.lm_head.shard_indices, "num_added_elements", 3), "3 added tokens"),
    ],
)
def test_what_only_the_models_can_tell(
    modules: SimpleNamespace, environment: dict[str, str], change: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Target.__post_init__

    def changed(self: Target) -> None:
        plain(self)
        change(self)

    monkeypatch.setattr(Target, "__post_init__", changed)
    with pytest.raises(Refused, match="DDTREE refuses: ") as caught:
        Service(modules, environment, 12)
    assert said in str(caught.value)
