#pragma once
// Attention without softmax: lightning attention (MiniMax-Text-01) and the gated delta rule (Qwen3-Next),
// which keep a state of fixed size for each sequence and head, and HSTU (generative recommenders), pointwise
// SiLU over the keys. One call computes one layer over a batch of sequences of any lengths, which lie one
// after another in tensors of T rows. On a GPU all pointers are in its memory, and calls queue work and
// return.
//
// docs/linear-attention.md has what each device computes, which bits depend on what, and measurements.
#include <cstdint>

#include "fovea/dtype.h"
#include "fovea/result_fwd.h"

namespace fovea {

class Stream;

/// A tensor [T, H, D]: element (t, h, d) is data[t * token_stride + h * head_stride + d]. Strides in
/// elements; on a GPU multiples of 8, and the address a multiple of 16 bytes.
struct HeadRows {
  const void* data = nullptr;
  int64_t token_stride = 0, head_stride = 0;
};
/// The same, written to. Its elements do not overlap, nor those of an input.
struct WrittenHeadRows {
  void* data = nullptr;
  int64_t token_stride = 0, head_stride = 0;
};

/// The sequences of a call: sequence b has the rows [offsets[b], offsets[b + 1]), possibly none.
struct Sequences {
  int count = 0;    ///< B
  int tokens = 0;   ///< T = offsets[B]
  int max_len = 0;  ///< no sequence has more rows; 0 = T. On a GPU rows beyond it are not computed
  const int32_t* offsets =
      nullptr;  ///< [B + 1], from 0, not decreasing; checked on the CPU, clamped on a GPU
};

/// The states of a call, fp32, one dense [H, Dk, Dv] block per slot (H: heads of v; S[dk][dv]).
struct LinearStates {
  const float* in = nullptr;           ///< [slots, H, Dk, Dv] before the first row; null = all zeros
  float* out = nullptr;                ///< after the last row; null = not kept. May be `in`
  const int32_t* in_slots = nullptr;   ///< [B]: slot of sequence b, below 0 = zeros; null = b
  const int32_t* out_slots = nullptr;  ///< [B]: distinct, below 0 = not kept; null = b
  int slots = 0;  ///< of `in` and of `out`. A slot >= slots: an error on the CPU, no state on a GPU
};

/// Which arithmetic computes the rows. On the CPU both are the recurrence.
enum class LinearForm : uint8_t {
  chunked,    ///< tensor cores over chunks of kLinearChunk rows, counted from a sequence's first row of the
              ///< call
  recurrent,  ///< row by row in fp32: for decode, short sequences and shapes without a chunked kernel
};
/// Rows per chunk. A sequence computed in several calls has the bits of one call if all but its last call
/// have a multiple of this number of its rows; in the recurrent form, always.
inline constexpr int kLinearChunk = 64;
/// The largest Dk of both; on a GPU also the largest Dv.
inline constexpr int kLinearMaxHeadDim = 256;

/// Lightning attention. For each sequence and head, from t = its first row:
///   S_t = exp(log_decay[h]) S_{t-1} + k_t v_t^T;  o_t = scale S_t^T q_t
/// MiniMax-Text-01 passes q, k and v after SiLU, scale 1 and log_decay = -slope (lightning_log_decay()).
/// Source: transformers, models/minimax/modeling_minimax.py.
struct LightningAttention {
  DType dtype = DType::bf16;  ///< of q, k, v and out
  int heads = 0, dk = 0, dv = 0;
  HeadRows q, k;  ///< [T, H, Dk]
  HeadRows v;     ///< [T, H, Dv]
  WrittenHeadRows out;
  Sequences sequences;
  const float* log_decay = nullptr;  ///< [H], at most 0; -inf = no memory
  float scale = 1.0f;
  LinearStates states;
  LinearForm form = LinearForm::chunked;
};
/// Errors: sizes, strides and null pointers; on the CPU offsets and slots; on a GPU a shape without a kernel.
Status lightning_attention(const LightningAttention& call, Stream& stream);

/// log_decay of MiniMax-Text-01's layer `layer` of `layers`, into out [heads]:
/// -2^(-8 (h + 1) / heads) (1 - layer / (layers - 1 + 1e-5) + 1e-5). Source: as above (heads: a power of
/// two).
void lightning_log_decay(int heads, int layer, int layers, float* out);

/// The gated delta rule. For each sequence and head h of v, with kh = h / (H / Hk):
///   S = exp(g_t) S_{t-1};  e = beta_t (v_t - S^T k_t);  S_t = S + k_t e^T;  o_t = scale S_t^T q_t
/// Source: flash-linear-attention, fla/ops/gated_delta_rule/naive.py; transformers,
/// models/qwen3_next/modeling_qwen3_next.py.
struct GatedDeltaRule {
  DType dtype = DType::bf16;  ///< of q, k, v and out
  int heads = 0;              ///< H: of v, out, g, beta and the state
  int k_heads = 0;            ///< Hk: of q and k; H is a multiple of it
  int dk = 0, dv = 0;
  HeadRows q, k;  ///< [T, Hk, Dk]
  HeadRows v;     ///< [T, H, Dv]
  WrittenHeadRows out;
  Sequences sequences;
  const float* g = nullptr;     ///< [T, H] log of the decay, at most 0; null = 0. -inf forgets the state
  const float* beta = nullptr;  ///< [T, H]; null = 1
  int64_t g_stride = 0, beta_stride = 0;  ///< elements between rows of g and of beta
  float scale = 0.0f;                     ///< 0 = Dk^-0.5
  bool normalize_qk = false;              ///< q and k are first multiplied by rsqrt(sum x^2 + 1e-6) over Dk
  LinearStates states;
  LinearForm form = LinearForm::chunked;
};
/// Errors: as lightning_attention().
Status gated_delta_rule(const GatedDeltaRule& call, Stream& stream);

/// HSTU attention: O_i = sum over visible j of silu(alpha q_i.k_j + bias_ij) / max_seq_len v_j, with
/// silu(z) = z / (1 + exp(-z)). For a sequence of n keys, the first c of them contextual and the last t
/// targets:
///   id(i) = i, or max(i - c + 1, 0) if c > 0;  M = n, or n - c + 1 if c > 0;  with targets M -= t and
///   id(i) = min(id(i), M).  j is visible to i if i == j, or id(i) > id(j) and (max_attn_len == 0 or
///   id(i) - id(j) <= max_attn_len or (min_full > 0 and id(i) >= M - min_full)), or c > 0 and id(i) == 0 and
///   id(j) < M.
/// bias_ij = position_bias[N - 1 + j - i] + time_bias[bucket(|time[i + 1] - time[j]|)], each if given, where
/// N = max_seq_len, bucket(x) = the number of time_bounds <= x, and time[n] is time[n - 1].
/// Source: generative-recommenders, ops/pytorch/pt_hstu_attention.py; biases:
/// research/modeling/sequential/hstu.py.
struct HstuAttention {
  DType dtype = DType::bf16;  ///< of q, k, v and out
  int heads = 0, dk = 0, dv = 0;
  HeadRows q;           ///< [Tq, H, Dk]
  HeadRows k;           ///< [T, H, Dk]
  HeadRows v;           ///< [T, H, Dv]
  WrittenHeadRows out;  ///< [Tq, H, Dv]
  Sequences sequences;  ///< of k and v
  /// [B + 1]: sequence b's queries are its last q_offsets[b + 1] - q_offsets[b] rows; null = all, Tq = T.
  const int32_t* q_offsets = nullptr;
  int q_tokens = 0;     ///< Tq, with q_offsets
  int max_seq_len = 0;  ///< N: the divisor, and the length that position_bias is for; not below max_len
  float alpha = 0.0f;   ///< 0 = Dk^-0.5
  const int32_t* num_targets = nullptr;  ///< [B] t, 0 to n; null = none
  int contextual = 0;                    ///< c
  int max_attn_len = 0;                  ///< 0 = unbounded
  int min_full = 0;
  const float* position_bias = nullptr;  ///< [2 N - 1]
  const float* time_bias = nullptr;      ///< [time_buckets + 1]
  const int64_t* time_bounds = nullptr;  ///< [time_buckets] ascending, with time_bias
  int time_buckets = 0;                  ///< at most 1024
  const int64_t* times = nullptr;        ///< [T], with time_bias
};
/// Errors: as lightning_attention().
Status hstu_attention(const HstuAttention& call, Stream& stream);

/// time_bounds of the research code's bucket(x) = floor(log(max(x, 1)) / 0.301), clamped to `buckets`:
/// bounds[i] = ceil(exp(0.301 (i + 1))), into out [buckets], at most INT64_MAX.
void hstu_time_bounds(int buckets, int64_t* out);

}  // namespace fovea
