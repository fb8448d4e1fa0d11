"""The tiny decoders of tests/goldens, one Spec a fixture. New ones go to the end: the seed is the position."""

from dataclasses import dataclass, field

import torch

BOS, EOS = 256, 257
TOKENIZER_SIZE = 258  # the 256 bytes, <s> and </s>
LENGTHS = [1, 15, 16, 17, 31, 33, 100, 200]  # one token; a page of 16 +-1, two +-1; many chunks of 16
LONG = LENGTHS + [700]  # also more than one chunk of 512
LARGE_EPS = 1e-3  # changes logits by more than the test's 1e-3; the usual 1e-5 and 1e-6 do not


def window_lengths(window):
    """Where a sliding window or a chunk begins to hide keys, and far beyond."""
    return sorted({1, window - 1, window, window + 1, 2 * window, 100, 200})


@dataclass
class Spec:
    """One fixture; `config` goes to the transformers config class as it is."""

    name: str
    family: str  # the config class is CONFIGS[family] of make.py
    dtype: torch.dtype
    config: dict
    lengths: list = field(default_factory=lambda: LENGTHS)
    max_shard_size: str = "1GB"
    mxfp4: bool = False  # experts are stored as 4-bit blocks


def shape(hidden, inter, layers, heads, kv_heads, head_dim, vocab=TOKENIZER_SIZE, max_position=1024, **more):
    return dict(
        hidden_size=hidden, intermediate_size=inter, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, head_dim=head_dim, vocab_size=vocab, max_position_embeddings=max_position,
        bos_token_id=BOS, eos_token_id=EOS, pad_token_id=None, **more)


def rope(theta, kind="default", **more):
    return dict(rope_theta=theta, rope_type=kind, **more)


def llama3_rope(factor, original):
    return rope(500000.0, "llama3", factor=factor, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=original)


F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
MODELS = [
    Spec("llama2_mha_d16_fp32", "llama", F32,
         shape(32, 72, 2, 2, 2, 16, rms_norm_eps=1e-5, rope_parameters=rope(10000.0))),
    Spec("llama3_gqa4_d16_bf16", "llama", BF16,
         shape(64, 96, 2, 4, 1, 16, rms_norm_eps=1e-5, rope_parameters=llama3_rope(8.0, 64)), lengths=LONG),
    Spec("llama32_gqa4_d64_fp16", "llama", F16,
         shape(32, 64, 2, 4, 1, 64, rms_norm_eps=1e-5, rope_parameters=llama3_rope(32.0, 128),
               tie_word_embeddings=True)),
    Spec("llama_linear_gqa3_d24_fp16", "llama", F16,
         shape(48, 80, 3, 3, 1, 24, rms_norm_eps=1e-6, rope_parameters=rope(10000.0, "linear", factor=4.0),
               tie_word_embeddings=True)),
    Spec("llama_bias_gqa2_d16_fp32", "llama", F32,
         shape(32, 64, 2, 4, 2, 16, rms_norm_eps=LARGE_EPS, rope_parameters=rope(10000.0), attention_bias=True,
               mlp_bias=True, tie_word_embeddings=True)),
    Spec("llama_padded_gqa5_d16_bf16_sharded", "llama", BF16,
         shape(40, 56, 3, 5, 1, 16, vocab=320, rms_norm_eps=1e-5, rope_parameters=rope(500000.0)),
         max_shard_size="40KB"),
    Spec("qwen3_gqa2_d32_bf16", "qwen3", BF16,
         shape(48, 64, 3, 4, 2, 32, rms_norm_eps=1e-6, rope_parameters=rope(1000000.0), tie_word_embeddings=True),
         lengths=LONG),
    Spec("qwen3_gqa3_d64_bf16", "qwen3", BF16,
         shape(32, 48, 2, 3, 1, 64, rms_norm_eps=1e-6, rope_parameters=rope(1000000.0))),
    Spec("qwen3_gqa5_d80_bf16", "qwen3", BF16,
         shape(32, 40, 2, 5, 1, 80, rms_norm_eps=1e-6, rope_parameters=rope(1000000.0), tie_word_embeddings=True)),
    Spec("qwen3_gqa7_d128_bf16", "qwen3", BF16,
         shape(24, 40, 2, 7, 1, 128, rms_norm_eps=1e-6, rope_parameters=rope(1000000.0),
               tie_word_embeddings=True)),
    Spec("qwen3_bias_gqa4_d16_fp32_sharded", "qwen3", F32,
         shape(32, 56, 2, 4, 1, 16, rms_norm_eps=LARGE_EPS, rope_parameters=rope(1000000.0), attention_bias=True),
         max_shard_size="50KB"),
    Spec("qwen3_padded_gqa7_d16_fp16", "qwen3", F16,
         shape(32, 56, 3, 14, 2, 16, vocab=288, rms_norm_eps=1e-6, rope_parameters=rope(1000000.0),
               tie_word_embeddings=True)),
]

W = 24  # a window that neither a page nor a chunk divides
YARN = rope(10000.0, "yarn", factor=8.0, original_max_position_embeddings=64, beta_fast=32.0, beta_slow=1.0)
LONGROPE = rope(10000.0, "longrope", short_factor=[1.0 + 0.1 * i for i in range(8)],
                long_factor=[1.0 + 0.7 * i for i in range(8)])
SLIDING, FULL = "sliding_attention", "full_attention"

MODELS += [
    Spec("qwen2_gqa2_d16_bf16", "qwen2", BF16,
         shape(64, 80, 2, 4, 2, 16, rms_norm_eps=1e-6, rope_parameters=rope(1000000.0), tie_word_embeddings=True)),
    Spec("qwen2_window_gqa4_d16_fp32", "qwen2", F32,
         shape(64, 56, 3, 4, 1, 16, rms_norm_eps=1e-6, rope_parameters=YARN, use_sliding_window=True,
               sliding_window=W, max_window_layers=1, tie_word_embeddings=False), lengths=window_lengths(W)),
    Spec("mistral_window_gqa2_d16_bf16", "mistral", BF16,
         shape(48, 72, 3, 4, 2, 16, rms_norm_eps=1e-5, rope_parameters=rope(10000.0), sliding_window=W,
               tie_word_embeddings=False), lengths=window_lengths(W)),
    Spec("mistral_full_gqa4_d32_bf16", "mistral", BF16,
         shape(40, 64, 2, 4, 1, 32, rms_norm_eps=1e-5, rope_parameters=rope(1000000.0), sliding_window=None,
               tie_word_embeddings=False)),
    Spec("gemma2_gqa2_d16_bf16", "gemma2", BF16,
         shape(40, 64, 4, 4, 2, 16, rms_norm_eps=1e-6, rope_parameters=rope(10000.0), sliding_window=W,
               query_pre_attn_scalar=24, attn_logit_softcapping=4.0, final_logit_softcapping=6.0),
         lengths=window_lengths(W)),
    Spec("gemma3_gqa2_d32_bf16", "gemma3", BF16,
         shape(40, 48, 6, 2, 1, 32, rms_norm_eps=1e-6, sliding_window=W, query_pre_attn_scalar=20,
               layer_types=[SLIDING] * 2 + [FULL] + [SLIDING] * 2 + [FULL],
               rope_parameters={SLIDING: rope(10000.0), FULL: rope(1000000.0, "linear", factor=8.0)}),
         lengths=window_lengths(W)),
    Spec("olmo2_mha_d16_bf16", "olmo2", BF16,
         shape(48, 64, 2, 3, 3, 16, rms_norm_eps=1e-6, rope_parameters=rope(500000.0), tie_word_embeddings=False)),
    Spec("granite_gqa2_d16_bf16", "granite", BF16,
         shape(64, 72, 3, 4, 2, 16, rms_norm_eps=1e-6, rope_parameters=rope(10000.0), embedding_multiplier=0.8,
               residual_multiplier=1.5, attention_multiplier=0.11, logits_scaling=2.0, tie_word_embeddings=True)),
    Spec("phi3_short_gqa2_d24_bf16", "phi3", BF16,
         shape(96, 64, 2, 4, 2, 24, rms_norm_eps=1e-5, max_position=64, original_max_position_embeddings=64,
               partial_rotary_factor=2 / 3, rope_parameters=dict(LONGROPE, partial_rotary_factor=2 / 3),
               sliding_window=None, tie_word_embeddings=False), lengths=[1, 15, 16, 17, 31, 33, 47]),
    Spec("phi3_long_mha_d16_bf16", "phi3", BF16,
         shape(48, 64, 2, 3, 3, 16, rms_norm_eps=1e-5, original_max_position_embeddings=64, rope_parameters=LONGROPE,
               sliding_window=80, tie_word_embeddings=False), lengths=[65, 79, 80, 81, 160, 200]),
    Spec("llama4_gqa2_d16_bf16", "llama4", BF16,
         shape(32, 24, 4, 4, 2, 16, rms_norm_eps=1e-5, rope_parameters=rope(500000.0), intermediate_size_mlp=48,
               attention_chunk_size=W, no_rope_layers=[1, 1, 1, 0], interleave_moe_layer_step=2, num_local_experts=4,
               num_experts_per_tok=2, attn_temperature_tuning=True, floor_scale=16, attn_scale=0.3, use_qk_norm=True,
               tie_word_embeddings=False), lengths=window_lengths(W)),
    Spec("mixtral_gqa2_d16_bf16", "mixtral", BF16,
         shape(32, 40, 2, 4, 2, 16, rms_norm_eps=1e-5, rope_parameters=rope(1000000.0), num_local_experts=5,
               num_experts_per_tok=2, sliding_window=W, tie_word_embeddings=False), lengths=window_lengths(W)),
    Spec("qwen3moe_gqa2_d16_bf16", "qwen3_moe", BF16,
         shape(32, 48, 4, 4, 2, 16, rms_norm_eps=1e-6, rope_parameters=rope(1000000.0), num_experts=6,
               num_experts_per_tok=3, moe_intermediate_size=24, decoder_sparse_step=1, mlp_only_layers=[1],
               norm_topk_prob=True, tie_word_embeddings=False)),
    Spec("qwen3moe_raw_gqa4_d16_fp32", "qwen3_moe", F32,
         shape(24, 40, 2, 4, 1, 16, rms_norm_eps=1e-6, rope_parameters=rope(1000000.0), num_experts=4,
               num_experts_per_tok=2, moe_intermediate_size=16, decoder_sparse_step=2, mlp_only_layers=[],
               norm_topk_prob=False, tie_word_embeddings=True)),
    Spec("gptoss_gqa2_d16_bf16", "gpt_oss", BF16,
         shape(32, 24, 2, 4, 2, 16, rms_norm_eps=1e-5, rope_parameters=dict(YARN, truncate=False),
               sliding_window=W, layer_types=[SLIDING, FULL], num_local_experts=4, num_experts_per_tok=2,
               tie_word_embeddings=False), lengths=window_lengths(W)),
    Spec("gptoss_mxfp4_gqa4_d16", "gpt_oss", BF16,
         shape(64, 32, 2, 4, 1, 16, rms_norm_eps=1e-5, rope_parameters=dict(YARN, truncate=False),
               sliding_window=W, layer_types=[SLIDING, FULL], num_local_experts=4, num_experts_per_tok=2,
               tie_word_embeddings=False), lengths=window_lengths(W), mxfp4=True),
]


def latent(hidden, inter, layers, heads, q_rank, kv_rank, nope, rope_dim, v, **more):
    """Sizes of latent attention; the latent's are those of published models, which kernels are made for."""
    return shape(hidden, inter, layers, heads, heads, rope_dim, q_lora_rank=q_rank, kv_lora_rank=kv_rank,
                 qk_nope_head_dim=nope, qk_rope_head_dim=rope_dim, v_head_dim=v, **more)


def routed(experts, top, size, shared, scale, dense, **more):
    return dict(n_routed_experts=experts, num_experts_per_tok=top, moe_intermediate_size=size,
                n_shared_experts=shared, routed_scaling_factor=scale, first_k_dense_replace=dense, **more)


MODELS += [
    Spec("deepseekv3_mla4_bf16", "deepseek_v3", BF16,
         latent(32, 48, 3, 4, 24, 512, 16, 64, 16, rms_norm_eps=1e-6, tie_word_embeddings=False,
                rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0),
                **routed(12, 4, 24, 1, 2.5, 1, n_group=4, topk_group=2, norm_topk_prob=True))),
    Spec("deepseekv3_ungrouped_mla3_fp32", "deepseek_v3", F32,
         latent(24, 40, 2, 3, 16, 256, 24, 32, 16, rms_norm_eps=1e-6, tie_word_embeddings=True,
                rope_parameters=rope(50000.0), attention_bias=True,
                **routed(7, 3, 16, 2, 2.827, 1, n_group=1, topk_group=1, norm_topk_prob=True))),
    Spec("deepseekv2_mla4_bf16", "deepseek_v2", BF16,
         latent(32, 48, 3, 4, 24, 512, 16, 64, 24, rms_norm_eps=1e-6, tie_word_embeddings=False,
                rope_parameters=rope(10000.0),
                **routed(12, 3, 24, 2, 4.0, 1, n_group=4, topk_group=2, topk_method="group_limited_greedy",
                         norm_topk_prob=False))),
    Spec("deepseekv2_lite_mla2_bf16", "deepseek_v2", BF16,
         latent(32, 40, 3, 2, None, 512, 16, 64, 16, rms_norm_eps=1e-6, tie_word_embeddings=False,
                rope_parameters=rope(10000.0),
                **routed(8, 3, 16, 2, 1.0, 1, n_group=1, topk_group=1, topk_method="greedy", norm_topk_prob=False))),
    Spec("glm4moelite_mla4_bf16", "glm4_moe_lite", BF16,
         latent(32, 48, 3, 4, 24, 512, 24, 64, 32, rms_norm_eps=1e-5, tie_word_embeddings=False,
                rope_parameters=rope(1000000.0), mlp_layer_types=["dense", "sparse", "sparse"],
                **routed(8, 3, 24, 1, 1.8, 1, n_group=1, topk_group=1, norm_topk_prob=True))),
    # The indexer chooses among more keys than there are: dense attention.
    Spec("deepseekv32_dense_mla4_bf16", "deepseek_v32", BF16,
         latent(32, 48, 3, 4, 24, 512, 16, 64, 16, rms_norm_eps=1e-6, tie_word_embeddings=False, max_position=512,
                rope_parameters=rope(10000.0), index_topk=512, index_n_heads=4, index_head_dim=128,
                **routed(12, 4, 24, 1, 2.5, 1, n_group=4, topk_group=2, norm_topk_prob=True))),
    Spec("glmdsa_dense_mla4_bf16", "glm_moe_dsa", BF16,
         latent(32, 48, 3, 4, 24, 512, 24, 64, 32, rms_norm_eps=1e-5, tie_word_embeddings=False, max_position=512,
                rope_parameters=rope(1000000.0), index_topk=512, index_n_heads=4, index_head_dim=128,
                mlp_layer_types=["dense", "sparse", "sparse"],
                **routed(8, 3, 24, 1, 2.5, 1, n_group=1, topk_group=1, norm_topk_prob=True))),
    # And among fewer.
    Spec("deepseekv32_topk16_mla4_bf16", "deepseek_v32", BF16,
         latent(32, 48, 3, 4, 24, 512, 16, 64, 16, rms_norm_eps=1e-6, tie_word_embeddings=False, max_position=512,
                rope_parameters=rope(10000.0), index_topk=16, index_n_heads=4, index_head_dim=128,
                **routed(12, 4, 24, 1, 2.5, 1, n_group=4, topk_group=2, norm_topk_prob=True))),
    Spec("glmdsa_topk16_mla4_bf16", "glm_moe_dsa", BF16,
         latent(32, 48, 3, 4, 24, 512, 24, 64, 32, rms_norm_eps=1e-5, tie_word_embeddings=False, max_position=512,
                rope_parameters=rope(1000000.0), index_topk=16, index_n_heads=4, index_head_dim=128,
                mlp_layer_types=["dense", "sparse", "sparse"],
                **routed(8, 3, 24, 1, 2.5, 1, n_group=1, topk_group=1, norm_topk_prob=True))),
    Spec("minicpm3_mla4_bf16", "minicpm3", BF16,
         latent(32, 48, 3, 4, 24, 256, 16, 32, 16, rms_norm_eps=1e-5, tie_word_embeddings=False,
                rope_parameters=rope(10000.0, "longrope", factor=1.0, short_factor=[1.0 + 0.1 * i for i in range(16)],
                                     long_factor=[1.0 + 0.7 * i for i in range(16)],
                                     original_max_position_embeddings=1024),
                scale_emb=2.0, scale_depth=1.4, dim_model_base=16)),
    # Two layers of two attention blocks each; experts 6 to 9 return their input.
    Spec("longcat_mla4_bf16", "longcat_flash", BF16,
         latent(32, 48, 4, 4, 24, 512, 16, 64, 16, rms_norm_eps=1e-5, tie_word_embeddings=False,
                rope_parameters=rope(10000000.0), num_layers=2, n_routed_experts=6, zero_expert_num=4, moe_topk=4,
                expert_ffn_hidden_size=24, routed_scaling_factor=1.5)),
]
