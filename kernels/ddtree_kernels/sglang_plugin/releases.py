"""Releases of SGLang that this plug-in was made for, with every name of theirs that it uses. Standard library only.

A row is checked when the plug-in loads (`signatures.problems`), and in CI by reading the release's wheel.
"""

from __future__ import annotations

from dataclasses import dataclass

DFLASH = "sglang.srt.speculative.dflash_worker"
INFO = "sglang.srt.speculative.dflash_info"
FUSED = "sglang.srt.speculative.triton_ops.fused_kv_materialize"


@dataclass(frozen=True)
class Call:
    """A function or method and the names of its parameters, in order. use: override | call | hook."""

    path: str
    parameters: tuple[str, ...]
    use: str = "call"


@dataclass(frozen=True)
class Fields:
    """A class and fields of it that are read or written: annotated in its body, or set in its methods."""

    path: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Release:
    """calls: checked when the plug-in loads, but those in `late`, whose modules load the kernel library."""

    version: str
    calls: tuple[Call, ...]
    late: tuple[Call, ...]
    fields: tuple[Fields, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_0_5_12 = Release(
    "0.5.12",
    calls=(
        Call("sglang.srt.speculative.spec_info:SpeculativeAlgorithm.register",
             _words("name supports_overlap validate_server_args spec_class")),
        Call("sglang.srt.speculative.spec_info:SpeculativeAlgorithm.from_string", _words("name")),
        Call("sglang.srt.speculative.spec_registry:CustomSpecAlgo.__init__",
             _words("self name factory supports_overlap validate_server_args")),
        Call("sglang.srt.speculative.spec_registry:CustomSpecAlgo.is_dflash", _words("self"), "override"),
        Call("sglang.srt.speculative.spec_registry:CustomSpecAlgo.create_worker", _words("self server_args")),
        Call("sglang.srt.speculative.spec_registry:CustomSpecAlgo.supports_spec_v2", _words("self")),
        Call("sglang.srt.plugins.hook_registry:HookRegistry.register", _words("target hook hook_type source")),
    ),
    late=(
        Call(f"{DFLASH}:DFlashWorker.__init__",
             _words("self server_args gpu_id tp_rank dp_rank moe_ep_rank attn_cp_rank moe_dp_rank nccl_port "
                    "target_worker"), "override"),
        Call(f"{DFLASH}:DFlashWorker._prepare_for_speculative_decoding", _words("self batch draft_input"), "override"),
        Call(f"{DFLASH}:DFlashWorker._append_target_hidden_to_draft_kv", _words("self batch draft_input"), "override"),
        Call(f"{DFLASH}:DFlashWorker._append_target_hidden_sequential",
             _words("self ctx_hidden ctx_positions ctx_cache_loc")),
        Call(f"{FUSED}:_fused_norm_rope",
             _words("kv k_norm_weight cos_sin_cache positions num_kv_heads head_dim rotary_dim eps")),
        Call(f"{DFLASH}:DFlashWorker.forward_batch_generation", _words("self batch kwargs")),
        Call(f"{INFO}:DFlashVerifyInput.verify", _words("self batch logits_output page_size"), "override"),
        Call(f"{INFO}:DFlashVerifyInput.generate_attn_arg_prefill",
             _words("self req_pool_indices paged_kernel_lens paged_kernel_lens_sum req_to_token")),
        Call("sglang.srt.layers.sampler:apply_custom_logit_processor",
             _words("logits sampling_batch_info num_tokens_in_batch")),
        Call("sglang.srt.mem_cache.common:alloc_token_slots", _words("tree_cache num_tokens backup_state")),
        Call("sglang.srt.mem_cache.allocator:TokenToKVPoolAllocator.alloc", _words("self need_size")),
        Call("sglang.srt.mem_cache.allocator:TokenToKVPoolAllocator.free", _words("self free_index")),
        Call("sglang.srt.mem_cache.allocator:BaseTokenToKVPoolAllocator.backup_state", _words("self")),
        Call("sglang.srt.mem_cache.allocator:BaseTokenToKVPoolAllocator.restore_state", _words("self state")),
        Call("sglang.srt.speculative.spec_utils:assign_req_to_token_pool_func",
             _words("req_pool_indices req_to_token start_offset end_offset out_cache_loc batch_size")),
        Call("sglang.srt.speculative.dflash_utils:resolve_dflash_verify_mask_policy", _words("attn_backend")),
        Call("sglang.srt.speculative.dflash_utils:parse_dflash_draft_config", _words("draft_hf_config")),
        Call("sglang.srt.server_args:get_global_server_args", ()),
        Call("sglang.srt.server_args:ServerArgs.add_cli_args", _words("parser"), "hook"),
        Call("sglang.srt.managers.schedule_batch:Req.update_spec_correct_drafts_histogram",
             _words("self num_correct_drafts")),
        Call("sglang.srt.managers.schedule_batch:ScheduleBatch.batch_size", _words("self")),
        Call("sglang.srt.managers.scheduler:validate_dflash_request", _words("req")),
        Call("sglang.srt.model_executor.model_runner:ModelRunner.forward",
             _words("self forward_batch skip_attn_backend_init pp_proxy_tensors reinit_attn_backend "
                    "split_forward_count")),
        Call("sglang.srt.model_executor.cuda_graph_runner:CudaGraphRunner.can_run", _words("self forward_batch")),
        Call("sglang.srt.layers.attention.triton_backend:TritonAttnBackend.init_cuda_graph_state",
             _words("self max_bs max_num_tokens kv_indices_buf cuda_graph_num_kv_splits_buf")),
        Call("sglang.srt.utils.hf_transformers.config:get_config",
             _words("model trust_remote_code revision model_override_args model_config_parser kwargs")),
    ),
    fields=(
        Fields(f"{INFO}:DFlashVerifyInput",
               _words("draft_token positions draft_token_num topk custom_mask capture_hidden_mode "
                      "num_tokens_per_batch")),
        Fields(f"{INFO}:DFlashDraftInput", _words("bonus_tokens target_hidden ctx_lens draft_seq_lens")),
        Fields(f"{DFLASH}:DFlashWorker",
               _words("block_size draft_model_runner model_runner page_size tp_rank device target_worker "
                      "_block_pos_offsets _draft_block_spec_info _mask_token_id draft_model _use_fused_kv_materialize "
                      "_fused_kv_helper")),
        Fields(f"{FUSED}:FusedKVMaterializeHelper",
               _words("rotary_emb batched_kv_weight k_norm_weights eps_values num_kv_heads head_dim rotary_dim")),
        Fields("sglang.srt.model_executor.forward_batch_info:ForwardBatch",
               _words("forward_mode batch_size input_ids req_pool_indices seq_lens out_cache_loc seq_lens_sum "
                      "orig_seq_lens seq_lens_cpu return_logprob positions req_to_token_pool token_to_kv_pool "
                      "attn_backend spec_info spec_algorithm capture_hidden_mode num_token_non_padded "
                      "num_token_non_padded_cpu global_forward_mode input_embeds")),
        Fields("sglang.srt.managers.schedule_batch:ScheduleBatch",
               _words("reqs tree_cache input_ids out_cache_loc seq_lens seq_lens_cpu seq_lens_sum req_pool_indices "
                      "req_to_token_pool token_to_kv_pool_allocator sampling_info spec_info forward_mode has_grammar "
                      "return_hidden_states")),
        Fields("sglang.srt.managers.schedule_batch:Req",
               _words("output_ids spec_verify_ct spec_num_correct_drafts kv_committed_len kv_allocated_len")),
        Fields("sglang.srt.sampling.sampling_batch_info:SamplingBatchInfo",
               _words("temperatures top_ps top_ks min_ps is_all_greedy need_top_p_sampling need_top_k_sampling "
                      "need_min_p_sampling penalizer_orchestrator has_custom_logit_processor logit_bias")),
        Fields("sglang.srt.layers.logits_processor:LogitsProcessorOutput", _words("next_token_logits hidden_states")),
        Fields("sglang.srt.layers.attention.triton_backend:TritonAttnBackend",
               _words("num_draft_tokens cuda_graph_custom_mask")),
        Fields("sglang.srt.model_executor.cuda_graph_runner:CudaGraphRunner", _words("num_tokens_per_bs max_bs")),
        Fields("sglang.srt.model_executor.model_runner:ModelRunner",
               _words("spec_algorithm graph_runner attn_backend "
                      "sliding_window_size use_mla_backend dflash_target_layer_ids "
                      "req_to_token_pool token_to_kv_pool_allocator model_config")),
        Fields("sglang.srt.model_executor.model_runner_kv_cache_mixin:ModelRunnerKVCacheMixin",
               _words("token_to_kv_pool")),
        Fields("sglang.srt.server_args:ServerArgs",
               _words("page_size tp_size dp_size pp_size ep_size moe_dp_size attn_cp_size nnodes tokenizer_worker_num "
                      "enable_dp_attention enable_lora lora_paths enable_deterministic_inference "
                      "enable_two_batch_overlap enable_pdmux disaggregation_mode speculative_draft_window_size "
                      "speculative_adaptive disable_cuda_graph_padding dllm_algorithm enable_hisparse "
                      "speculative_draft_model_path speculative_draft_model_revision speculative_eagle_topk "
                      "speculative_num_steps speculative_num_draft_tokens speculative_dflash_block_size "
                      "speculative_algorithm attention_backend prefill_attention_backend decode_attention_backend "
                      "disable_overlap_schedule enable_mixed_chunk max_running_requests cuda_graph_bs "
                      "cuda_graph_max_bs trust_remote_code json_model_override_args triton_attention_num_kv_splits "
                      "load_format language_only decode_log_interval disable_cuda_graph")),
    ),
)  # fmt: skip

TESTED = {release.version: release for release in (_0_5_12,)}
"""version -> what it must look like."""
