"""The functions of flash_attn 2.8 and of FlashAttention 3's flash_attn_interface, with their parameters, and which are refused."""

import numpy as np

from api_table import Row

ONE = np.ones(1, np.float32)
_FA2 = "dropout_p softmax_scale causal window_size softcap alibi_slopes deterministic return_attn_probs"
_FA2_REFUSED = {"dropout_p": (0.1, "no dropout"), "return_attn_probs": (True, "return_softmax_lse")}
_TUNING = "num_splits pack_gqa"
_FA3_REFUSED = {"sm_margin": (2, "whole device")}

TABLE = {
    "flash_attn.flash_attn_func": Row("q k v " + _FA2, "deterministic", _FA2_REFUSED),
    "flash_attn.flash_attn_kvpacked_func": Row("q kv " + _FA2, "deterministic", _FA2_REFUSED),
    "flash_attn.flash_attn_qkvpacked_func": Row("qkv " + _FA2, "deterministic", _FA2_REFUSED),
    "flash_attn.flash_attn_varlen_func": Row(
        f"q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k {_FA2} block_table", "deterministic", _FA2_REFUSED
    ),
    "flash_attn.flash_attn_varlen_kvpacked_func": Row(
        f"q kv cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k {_FA2}", "deterministic", _FA2_REFUSED
    ),
    "flash_attn.flash_attn_varlen_qkvpacked_func": Row(f"qkv cu_seqlens max_seqlen {_FA2}", "deterministic", _FA2_REFUSED),
    "flash_attn.flash_attn_with_kvcache": Row(
        "q k_cache v_cache k v rotary_cos rotary_sin cache_seqlens cache_batch_idx cache_leftpad block_table softmax_scale causal "
        "window_size softcap rotary_interleaved alibi_slopes num_splits return_softmax_lse",
        "num_splits",
    ),
    "flash_attn_interface.flash_attn_func": Row(
        "q k v softmax_scale causal qv q_descale k_descale v_descale window_size attention_chunk softcap num_splits pack_gqa "
        "deterministic sm_margin return_attn_probs",
        "deterministic " + _TUNING,
        _FA3_REFUSED,
    ),
    "flash_attn_interface.flash_attn_qkvpacked_func": Row(
        "qkv softmax_scale causal q_descale k_descale v_descale window_size attention_chunk softcap deterministic num_heads_q sm_margin "
        "return_attn_probs",
        "deterministic",
        _FA3_REFUSED,
    ),
    "flash_attn_interface.flash_attn_varlen_func": Row(
        "q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k seqused_q seqused_k softmax_scale causal qv q_descale k_descale "
        "v_descale window_size attention_chunk softcap num_splits pack_gqa deterministic sm_margin return_attn_probs",
        "deterministic " + _TUNING,
        _FA3_REFUSED,
    ),
    "flash_attn_interface.flash_attn_with_kvcache": Row(
        "q k_cache v_cache k v qv rotary_cos rotary_sin cache_seqlens cache_batch_idx cache_leftpad page_table cu_seqlens_q "
        "cu_seqlens_k_new max_seqlen_q rotary_seqlens q_descale k_descale v_descale softmax_scale causal window_size attention_chunk "
        "softcap rotary_interleaved scheduler_metadata num_splits pack_gqa sm_margin return_softmax_lse",
        _TUNING,
        {**_FA3_REFUSED, "scheduler_metadata": (ONE, "plans by itself")},
    ),
    "flash_attn_interface.flash_attn_combine": Row(
        "out_partial lse_partial out out_dtype", refused={"out_dtype": ("float16", "convert the result")}
    ),
    "flash_attn_interface.get_scheduler_metadata": Row(
        "batch_size max_seqlen_q max_seqlen_k num_heads_q num_heads_kv headdim cache_seqlens qkv_dtype headdim_v cu_seqlens_q "
        "cu_seqlens_k_new cache_leftpad page_size max_seqlen_k_new causal window_size attention_chunk has_softcap num_splits pack_gqa "
        "sm_margin",
        "qkv_dtype headdim_v cu_seqlens_q cu_seqlens_k_new cache_leftpad page_size max_seqlen_k_new causal window_size attention_chunk "
        "has_softcap num_splits pack_gqa sm_margin",
    ),
}
