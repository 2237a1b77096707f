"""The validation matrix: one launch that is right, and every way in which one would be wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ddtree_kernels.sglang_plugin import validate
from ddtree_kernels.sglang_plugin.settings import Refused, Settings
from ddtree_kernels.sglang_plugin.validate import Model


def arguments(**more: Any) -> Any:
    """ServerArgs as SGLang 0.5.12 hands them over for a small target on Triton."""
    given: dict[str, Any] = {
        "page_size": 1, "tp_size": 1, "dp_size": 1, "pp_size": 1, "ep_size": 1, "moe_dp_size": 1, "attn_cp_size": 1,
        "nnodes": 1, "tokenizer_worker_num": 1, "enable_dp_attention": False, "enable_lora": None, "lora_paths": None,
        "enable_deterministic_inference": False, "enable_two_batch_overlap": False, "enable_pdmux": False,
        "disaggregation_mode": "null", "speculative_draft_window_size": None, "speculative_adaptive": False,
        "disable_cuda_graph_padding": False, "dllm_algorithm": None, "enable_hisparse": False,
        "speculative_draft_model_path": "/m/draft", "speculative_eagle_topk": None, "speculative_num_steps": None,
        "speculative_num_draft_tokens": None, "speculative_dflash_block_size": None, "attention_backend": "triton",
        "prefill_attention_backend": None, "decode_attention_backend": None, "disable_overlap_schedule": False,
        "enable_mixed_chunk": False, "max_running_requests": None, "cuda_graph_bs": [1, 2, 4, 8, 12, 16],
        "cuda_graph_max_bs": 16,
    }  # fmt: skip
    return SimpleNamespace(**{**given, **more})


MODEL = Model(context=4096, vocabulary=4096, heads=8, head_size=64)
MADE = Settings("tree", 31, 16, 31)


def refusal(args: Any = None, made: Settings = MADE, model: Model = MODEL) -> str:
    """The one line of a refusal."""
    with pytest.raises(Refused) as caught:
        validate.check(args or arguments(), made, model)
    text = str(caught.value)
    assert text.startswith("DDTREE refuses: ") and "\n" not in text
    return text


def test_what_is_right_passes() -> None:
    validate.check(arguments(), MADE, MODEL)
    validate.check(arguments(page_size=None, speculative_eagle_topk=1), Settings("shadow", 15, 16, 15), MODEL)
    validate.check(arguments(attention_backend=None, prefill_attention_backend="triton",
                             decode_attention_backend="triton"), MADE, MODEL)  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"page_size": 16}, "use --page-size 1"),
        ({"tp_size": 2}, "tensor parallel is not supported"),
        ({"dp_size": 2}, "data parallel is not supported"),
        ({"enable_dp_attention": True}, "data-parallel attention"),
        ({"pp_size": 2}, "pipeline parallel is not supported"),
        ({"ep_size": 8}, "expert parallel"),
        ({"moe_dp_size": 2}, "expert parallel"),
        ({"attn_cp_size": 2}, "context parallel"),
        ({"nnodes": 2}, "several nodes"),
        ({"tokenizer_worker_num": 4}, "extra tokenizer workers load no plug-in"),
        ({"enable_lora": True}, "LoRA is not supported"),
        ({"lora_paths": ["a"]}, "LoRA is not supported"),
        ({"enable_deterministic_inference": True}, "deterministic inference"),
        ({"enable_two_batch_overlap": True}, "two batches at once"),
        ({"enable_pdmux": True}, "two batches at once"),
        ({"disaggregation_mode": "decode"}, "separate servers"),
        ({"speculative_draft_window_size": 4096}, "draft windows are not supported"),
        ({"speculative_adaptive": True}, "adaptive speculation"),
        ({"disable_cuda_graph_padding": True}, "graphs need their padding"),
        ({"dllm_algorithm": "x"}, "diffusion models"),
        ({"enable_hisparse": True}, "sparse attention"),
        ({"speculative_draft_model_path": None}, "it needs --speculative-draft-model-path"),
        ({"attention_backend": "fa3"}, "fa3 verifies a tree as a chain, silently"),
        ({"attention_backend": "fa4"}, "fa4 is causal only"),
        ({"attention_backend": "trtllm_mha"}, "trtllm_mha is causal only"),
        ({"attention_backend": "flashinfer"}, "flashinfer decides at graph capture"),
        ({"attention_backend": "intel_amx"}, "intel_amx is not known to apply a tree's mask"),
        ({"attention_backend": None}, "attention backend None is not known"),
        ({"decode_attention_backend": "fa3"}, "fa3 verifies a tree as a chain"),
        ({"prefill_attention_backend": "flashinfer"}, "flashinfer decides"),
        ({"speculative_eagle_topk": 4}, "--speculative-eagle-topk 4 is not supported on triton"),
        ({"attention_backend": "fa3", "speculative_eagle_topk": 2}, "use --attention-backend triton"),
    ],
)
def test_arguments(wrong: dict[str, Any], said: str) -> None:
    assert said in refusal(arguments(**wrong))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"mla": True}, "latent attention"),
        ({"hybrid": "mamba_d_state"}, "hybrid targets are not supported (mamba_d_state)"),
        ({"window": "sliding_window"}, "sliding window are not supported (sliding_window)"),
        ({"multimodal": True}, "multimodal targets"),
        ({"encoder_decoder": True}, "encoder-decoder"),
    ],
)
def test_targets(wrong: dict[str, Any], said: str) -> None:
    assert said in refusal(model=Model(vocabulary=4096, **wrong))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Settings(budget=14, ranks=14), "budget 14 is under block size - 1 = 15"),
        (Settings(budget=14, ranks=14), "at least 15, or --speculative-dflash-block-size 15"),
        (Settings(budget=1024), "budget 1024 is over 1023"),
        (Settings(budget=31, ranks=1), "15 positions of 1 tokens cannot hold 31 nodes"),
        (Settings(budget=31, ranks=0), "cannot hold 31 nodes"),
        (Settings(budget=0, block=1), "a block of 1 drafts nothing"),
    ],
)
def test_budgets(made: Settings, said: str) -> None:
    assert said in refusal(made=made)


def test_every_reason_is_told_at_once() -> None:
    text = refusal(arguments(page_size=64, attention_backend="fa3"), Settings(budget=3), Model(mla=True))
    assert all(word in text for word in ("--page-size 1", "fa3", "budget 3", "latent attention"))


@pytest.mark.parametrize(
    ("config", "by"),
    [
        ({"model_type": "qwen3", "layer_types": ["full_attention"] * 4}, ""),
        ({"layer_types": ["linear_attention", "full_attention"]}, "layer_types linear_attention"),
        ({"full_attention_interval": 4}, "full_attention_interval"),
        ({"hybrid_override_pattern": "M*M"}, "hybrid_override_pattern"),
        ({"layer_types": ["mamba"]}, "layer_types mamba"),
    ],
)
def test_hybrids_are_recognised(config: dict[str, Any], by: str) -> None:
    assert validate.hybrid_by(config) == by == validate.hybrid_by(SimpleNamespace(**config))


@pytest.mark.parametrize(
    ("config", "by"),
    [
        ({"sliding_window": None, "use_sliding_window": False}, ""),
        ({"sliding_window": 131072, "use_sliding_window": False}, ""),
        ({"sliding_window": 4096, "use_sliding_window": True}, "sliding_window"),
        ({"sliding_window": 4096}, "sliding_window"),
        ({"layer_types": ["sliding_attention", "full_attention"]}, "layer_types sliding_attention"),
        ({"attention_chunk_size": 8192}, "attention_chunk_size"),
    ],
)
def test_windows_are_recognised(config: dict[str, Any], by: str) -> None:
    assert validate.window_by(config) == by


def test_settled_arguments() -> None:
    args = arguments(enable_mixed_chunk=True, speculative_num_draft_tokens=64)
    said = validate.settle(args, Settings("tree", 31, 16, 31))
    assert (args.speculative_num_draft_tokens, args.speculative_dflash_block_size) == (32, 16)
    assert (args.speculative_num_steps, args.speculative_eagle_topk) == (1, 1)
    assert args.disable_overlap_schedule and not args.enable_mixed_chunk
    assert (args.max_running_requests, args.cuda_graph_bs, args.cuda_graph_max_bs) == (8, [1, 2, 4, 8], 8)
    assert "--speculative-num-draft-tokens 64 gives way to a budget of 31" in said
    kept = arguments(max_running_requests=12, speculative_num_draft_tokens=32, disable_overlap_schedule=True)
    assert validate.settle(kept, Settings("tree", 31, 16, 31)) == ["graphs are captured up to batch 12"]
    assert kept.cuda_graph_bs == [1, 2, 4, 8, 12] and kept.max_running_requests == 12
    alone = "a budget of 15 is the chain alone: a tree gains from 16 on"
    assert alone in validate.settle(arguments(), Settings("shadow", 15, 16, 15)) and alone not in said
    none = arguments(cuda_graph_bs=None, cuda_graph_max_bs=None, max_running_requests=3)
    validate.settle(none, MADE)
    assert none.cuda_graph_bs is None and none.cuda_graph_max_bs is None
