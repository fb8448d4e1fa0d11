"""FlashInfer 0.6's functions and classes for inference, with their parameters, and which of them are refused."""

import numpy as np

from api_table import Row

ONE = np.ones(1, np.float32)
_PLAN_REFUSED = {
    "prefix_len_ptr": (ONE, "custom_mask"), "token_pos_in_items_ptr": (ONE, "custom_mask"), "max_item_len_ptr": (ONE, "custom_mask"),
}
_PLAN_HINTS = (
    "use_fp16_qk_reduction non_blocking token_pos_in_items_len seq_lens seq_lens_q block_tables max_token_per_sequence fixed_split_size "
    "disable_split_kv"
)
_WRAPPER_REFUSED = {"use_cuda_graph": (True, "prepare_capture"), "jit_args": ([1], "flex_attention")}
_ROPE = "rotary_dim interleave rope_scale rope_theta"
_LLAMA = _ROPE + " low_freq_factor high_freq_factor old_context_len"

TABLE = {
    "flashinfer.single_decode_with_kv_cache": Row(
        "q k v kv_layout pos_encoding_mode use_tensor_cores q_scale k_scale v_scale window_left logits_soft_cap sm_scale rope_scale "
        "rope_theta return_lse",
        hints="use_tensor_cores",
    ),
    "flashinfer.single_prefill_with_kv_cache": Row(
        "q k v scale_q scale_k scale_v o_dtype custom_mask packed_custom_mask causal kv_layout pos_encoding_mode use_fp16_qk_reduction "
        "sm_scale window_left logits_soft_cap rope_scale rope_theta backend return_lse kv_cache_sf k_scale v_scale",
        hints="use_fp16_qk_reduction",
        refused={
            "kv_cache_sf": (ONE, "NVFP4"), "backend": ("fa3", "fovea.Attention"),
        },
    ),
    "flashinfer.BatchDecodeWithPagedKVCacheWrapper.__init__": Row(
        "float_workspace_buffer kv_layout use_cuda_graph use_tensor_cores paged_kv_indptr_buffer paged_kv_indices_buffer "
        "paged_kv_last_page_len_buffer backend jit_args",
        hints="float_workspace_buffer use_tensor_cores paged_kv_indptr_buffer paged_kv_indices_buffer paged_kv_last_page_len_buffer",
        refused=_WRAPPER_REFUSED,
    ),
    "flashinfer.BatchDecodeWithPagedKVCacheWrapper.plan": Row(
        "indptr indices last_page_len num_qo_heads num_kv_heads head_dim page_size * pos_encoding_mode window_left logits_soft_cap "
        "q_data_type kv_data_type data_type sm_scale rope_scale rope_theta non_blocking block_tables seq_lens fixed_split_size "
        "disable_split_kv q_len_per_req window_right o_data_type",
        hints="non_blocking block_tables seq_lens fixed_split_size disable_split_kv",
        refused={"window_right": (3, "no key is behind"), "o_data_type": ("bfloat16", "dtype of q")},
    ),
    "flashinfer.BatchDecodeWithPagedKVCacheWrapper.run": Row(
        "q paged_kv_cache * q_scale k_scale v_scale out lse return_lse enable_pdl window_left sinks q_len_per_req "
        "skip_softmax_threshold_scale_factor kv_cache_sf",
        hints="enable_pdl window_left q_len_per_req",
        refused={"skip_softmax_threshold_scale_factor": (1.0, "leaves out keys"), "kv_cache_sf": (ONE, "NVFP4")},
    ),
    "flashinfer.BatchPrefillWithPagedKVCacheWrapper.__init__": Row(
        "float_workspace_buffer kv_layout use_cuda_graph qo_indptr_buf paged_kv_indptr_buf paged_kv_indices_buf "
        "paged_kv_last_page_len_buf custom_mask_buf mask_indptr_buf backend jit_args jit_kwargs",
        hints="float_workspace_buffer qo_indptr_buf paged_kv_indptr_buf paged_kv_indices_buf paged_kv_last_page_len_buf "
        "custom_mask_buf mask_indptr_buf",
        refused={**_WRAPPER_REFUSED, "jit_kwargs": ({"a": 1}, "flex_attention")},
    ),
    "flashinfer.BatchPrefillWithPagedKVCacheWrapper.plan": Row(
        "qo_indptr paged_kv_indptr paged_kv_indices paged_kv_last_page_len num_qo_heads num_kv_heads head_dim_qk page_size head_dim_vo "
        "custom_mask packed_custom_mask causal pos_encoding_mode use_fp16_qk_reduction sm_scale window_left logits_soft_cap rope_scale "
        "rope_theta q_data_type kv_data_type o_data_type non_blocking prefix_len_ptr token_pos_in_items_ptr token_pos_in_items_len "
        "max_item_len_ptr seq_lens seq_lens_q block_tables max_token_per_sequence max_sequence_kv fixed_split_size disable_split_kv",
        hints=_PLAN_HINTS,
        refused={**_PLAN_REFUSED, "o_data_type": ("bfloat16", "dtype of q")},
    ),
    "flashinfer.BatchPrefillWithPagedKVCacheWrapper.run": Row(
        "q paged_kv_cache * q_scale k_scale v_scale out lse return_lse enable_pdl window_left sinks kv_cache_sf "
        "skip_softmax_threshold_scale_factor use_fp16_softmax uses_spcompress",
        hints="enable_pdl window_left",
        refused={
            "kv_cache_sf": (ONE, "NVFP4"), "skip_softmax_threshold_scale_factor": (1.0, "leaves out keys"),
            "use_fp16_softmax": (True, "fp32"), "uses_spcompress": (True, "not compressed"),
        },
    ),
    "flashinfer.BatchPrefillWithRaggedKVCacheWrapper.__init__": Row(
        "float_workspace_buffer kv_layout use_cuda_graph qo_indptr_buf kv_indptr_buf custom_mask_buf mask_indptr_buf backend jit_args "
        "jit_kwargs",
        hints="float_workspace_buffer qo_indptr_buf kv_indptr_buf custom_mask_buf mask_indptr_buf",
        refused={**_WRAPPER_REFUSED, "jit_kwargs": ({"a": 1}, "flex_attention")},
    ),
    "flashinfer.BatchPrefillWithRaggedKVCacheWrapper.plan": Row(
        "qo_indptr kv_indptr num_qo_heads num_kv_heads head_dim_qk head_dim_vo custom_mask packed_custom_mask causal pos_encoding_mode "
        "use_fp16_qk_reduction window_left logits_soft_cap sm_scale rope_scale rope_theta q_data_type kv_data_type o_data_type "
        "non_blocking prefix_len_ptr token_pos_in_items_ptr token_pos_in_items_len max_item_len_ptr fixed_split_size disable_split_kv "
        "seq_lens seq_lens_q max_token_per_sequence max_sequence_kv v_indptr o_indptr",
        hints=_PLAN_HINTS.replace(" block_tables", ""),
        refused={
            **_PLAN_REFUSED, "o_data_type": ("bfloat16", "dtype of q"), "v_indptr": (ONE, "rows of its keys"),
            "o_indptr": (ONE, "rows of its queries"),
        },
    ),
    "flashinfer.BatchPrefillWithRaggedKVCacheWrapper.run": Row(
        "q k v * q_scale k_scale v_scale o_scale out lse return_lse enable_pdl kv_cache_sf",
        hints="enable_pdl",
        refused={"o_scale": (2.0, "not quantised"), "kv_cache_sf": (ONE, "NVFP4")},
    ),
    "flashinfer.BatchAttention.__init__": Row("kv_layout device", hints="device"),
    "flashinfer.BatchAttention.plan": Row(
        "qo_indptr kv_indptr kv_indices kv_len_arr num_qo_heads num_kv_heads head_dim_qk head_dim_vo page_size causal sm_scale "
        "logits_soft_cap q_data_type kv_data_type use_profiler",
        refused={"use_profiler": (True, "no profile")},
    ),
    "flashinfer.BatchAttention.run": Row(
        "q kv_cache out lse k_scale v_scale logits_soft_cap profiler_buffer kv_cache_sf",
        refused={"profiler_buffer": (ONE, "no profile"), "kv_cache_sf": (ONE, "NVFP4")},
    ),
    "flashinfer.BatchAttentionWithAttentionSinkWrapper.__init__": Row(
        "float_workspace_buffer kv_layout use_cuda_graph qo_indptr_buf paged_kv_indptr_buf paged_kv_indices_buf "
        "paged_kv_last_page_len_buf custom_mask_buf mask_indptr_buf backend pos_encoding_mode use_fp16_qk_reduction q_data_type "
        "kv_data_type head_dim_qk head_dim_vo window_left",
        hints="float_workspace_buffer kv_layout qo_indptr_buf paged_kv_indptr_buf paged_kv_indices_buf paged_kv_last_page_len_buf "
        "custom_mask_buf mask_indptr_buf backend use_fp16_qk_reduction q_data_type kv_data_type head_dim_qk head_dim_vo",
        refused={"use_cuda_graph": (True, "prepare_capture"), "pos_encoding_mode": ("ALIBI", "apply_rope")},
    ),
    "flashinfer.MultiLevelCascadeAttentionWrapper.__init__": Row(
        "num_levels float_workspace_buffer kv_layout use_cuda_graph qo_indptr_buf_arr paged_kv_indptr_buf_arr paged_kv_indices_buf_arr "
        "paged_kv_last_page_len_buf_arr",
        hints="float_workspace_buffer qo_indptr_buf_arr paged_kv_indptr_buf_arr paged_kv_indices_buf_arr paged_kv_last_page_len_buf_arr",
        refused={"use_cuda_graph": (True, "prepare_capture")},
    ),
    "flashinfer.MultiLevelCascadeAttentionWrapper.plan": Row(
        "qo_indptr_arr paged_kv_indptr_arr paged_kv_indices_arr paged_kv_last_page_len num_qo_heads num_kv_heads head_dim page_size "
        "causal pos_encoding_mode use_fp16_qk_reduction sm_scale window_left logits_soft_cap rope_scale rope_theta q_data_type "
        "kv_data_type",
        hints="use_fp16_qk_reduction rope_scale rope_theta",
        refused={"pos_encoding_mode": [("ROPE_LLAMA", "apply_rope"), ("ALIBI", "apply_rope")], "window_left": (3, "within the level")},
    ),
    "flashinfer.MultiLevelCascadeAttentionWrapper.run": Row("q paged_kv_cache"),
    "flashinfer.merge_state": Row("v_a s_a v_b s_b"),
    "flashinfer.merge_state_in_place": Row("v s v_other s_other mask"),
    "flashinfer.merge_states": Row("v s"),
    "flashinfer.get_batch_indices_positions": Row("append_indptr seq_lens nnz batch_indices positions"),
    "flashinfer.get_seq_lens": Row("kv_indptr kv_last_page_len page_size"),
    "flashinfer.append_paged_kv_cache": Row(
        "append_key append_value batch_indices positions paged_kv_cache kv_indices kv_indptr kv_last_page_len kv_layout",
        hints="kv_last_page_len",
    ),
    "flashinfer.append_paged_mla_kv_cache": Row(
        "append_ckv append_kpe batch_indices positions ckv_cache kpe_cache kv_indices kv_indptr kv_last_page_len",
        hints="kv_last_page_len",
    ),
    "flashinfer.apply_rope": Row("q k indptr offsets " + _ROPE),
    "flashinfer.apply_rope_inplace": Row("q k indptr offsets " + _ROPE),
    "flashinfer.apply_rope_pos_ids": Row("q k pos_ids " + _ROPE),
    "flashinfer.apply_rope_pos_ids_inplace": Row("q k pos_ids " + _ROPE),
    "flashinfer.apply_llama31_rope": Row("q k indptr offsets " + _LLAMA),
    "flashinfer.apply_llama31_rope_inplace": Row("q k indptr offsets " + _LLAMA),
    "flashinfer.apply_llama31_rope_pos_ids": Row("q k pos_ids " + _LLAMA),
    "flashinfer.apply_llama31_rope_pos_ids_inplace": Row("q k pos_ids " + _LLAMA),
    "flashinfer.apply_rope_with_cos_sin_cache": Row("positions query key head_size cos_sin_cache is_neox"),
    "flashinfer.apply_rope_with_cos_sin_cache_inplace": Row("positions query key head_size cos_sin_cache is_neox"),
    "flashinfer.packbits": Row("x bitorder"),
    "flashinfer.segment_packbits": Row("x indptr bitorder"),
}

# In test_mla.py.
MLA_TABLE = {
    "flashinfer.BatchMLAPagedAttentionWrapper.__init__": Row(
        "float_workspace_buffer use_cuda_graph qo_indptr kv_indptr kv_indices kv_len_arr backend",
        hints="float_workspace_buffer qo_indptr kv_indptr kv_indices kv_len_arr",
        refused={"use_cuda_graph": (True, "prepare_capture")},
    ),
    "flashinfer.BatchMLAPagedAttentionWrapper.plan": Row(
        "qo_indptr kv_indptr kv_indices kv_len_arr num_heads head_dim_ckv head_dim_kpe page_size causal sm_scale q_data_type kv_data_type "
        "use_profiler",
        refused={"use_profiler": (True, "no profile")},
    ),
    "flashinfer.BatchMLAPagedAttentionWrapper.run": Row(
        "q_nope q_pe ckv_cache kpe_cache out lse return_lse profiler_buffer kv_len page_table return_lse_base_on_e",
        refused={"profiler_buffer": (ONE, "no profile"), "kv_len": (ONE, "kv_len_arr"), "page_table": (ONE, "kv_indptr")},
    ),
}

# What FlashInfer exports beside these for attention, pages and rotation: absent, with the reason (fovea.flashinfer.REFUSED).
ABSENT = """
BatchDecodeMlaWithPagedKVCacheWrapper BatchDecodeWithSharedPrefixPagedKVCacheWrapper
BatchPODWithPagedKVCacheWrapper BatchPrefillWithSharedPrefixPagedKVCacheWrapper BlockSparseAttentionWrapper
CUDAGraphBatchDecodeWithPagedKVCacheWrapper PODWithPagedKVCacheWrapper VariableBlockSparseAttentionWrapper
cudnn_batch_decode_with_kv_cache cudnn_batch_prefill_with_kv_cache fast_decode_plan mla_rope_quantize_fp8
nvfp4_quantize_append_paged_kv_cache nvfp4_quantize_append_paged_kv_cache_with_slot_mapping rope_quantize_fp8
rope_quantize_fp8_append_paged_kv_cache single_decode_with_kv_cache_with_jit_module single_prefill_with_kv_cache_with_jit_module
trtllm_batch_context_with_kv_cache trtllm_batch_decode_with_kv_cache trtllm_fmha_v2_prefill trtllm_ragged_attention_deepseek xqa
xqa_batch_decode_with_kv_cache
""".split()
