#pragma once
// What an attention layer needs (AttentionSpec), and the device that it runs on (DeviceInfo). Lengths are in
// tokens and sizes in elements; names with "bytes" are in bytes.
#include <cstdint>
#include <string>
#include <string_view>

#include "fovea/capability.h"
#include "fovea/dtype.h"

namespace fovea {

/// Which keys j a query at absolute position p = i + n_k - n_q sees. Every test that is set must hold. Spans
/// (bidirectional multimodal spans) add keys to those; a packed mask replaces all tests except the spans.
struct MaskSpec {
  bool causal = true;     ///< j <= p (bottom-right aligned)
  int window_left = -1;   ///< p - j <= window_left; -1 = unbounded. A model's sliding_window W is (W - 1, 0).
  int window_right = -1;  ///< j - p <= window_right; -1 = unbounded
  int chunk = 0;          ///< floor(j / chunk) == floor(p / chunk); 0 = off
  int sink_tokens = 0;    ///< the first keys stay visible outside the window (StreamingLLM); 0 = off
  bool spans = false;     ///< BatchMeta::spans is used
  bool packed = false;    ///< BatchMeta::packed_mask is used; needs causal = false
  bool tree = false;      ///< BatchMeta::tree_bias is used

  bool operator==(const MaskSpec&) const = default;
};

/// What replaces softmax over keys in layers of LayerKind::linear: a state of fixed size for each head.
enum class LinearAttention : uint8_t {
  none,         ///< softmax
  lightning,    ///< a decaying sum (MiniMax-Text-01)
  gated_delta,  ///< the gated delta rule (Qwen3-Next; Kimi Linear, with a gate for each channel)
  pointwise,    ///< SiLU of each score (HSTU)
};
/// "softmax", "lightning", "gated delta rule", "pointwise"
std::string_view to_string(LinearAttention linear);

/// What one attention layer needs; constant for the lifetime of the model.
struct AttentionSpec {
  int num_heads = 0;         ///< query heads Hq, a multiple of num_kv_heads
  int num_kv_heads = 0;      ///< Hkv; query head h reads kv head h / (Hq / Hkv)
  int head_dim = 0;          ///< D of Q and K
  int v_head_dim = 0;        ///< Dv of V and O
  float scale = 0.0f;        ///< multiplies q.k; required (no default, models differ)
  float softcap = 0.0f;      ///< cap * tanh(s / cap) when > 0
  DType dtype = DType::f32;  ///< Q and O
  KvCacheDType kv_dtype = KvCacheDType::auto_;
  bool kv_x_packed = false;  ///< the cache has KvLayout::x_packed
  bool kv_shuffle = false;   ///< the cache has KvLayout::shuffle
  AttentionType type = AttentionType::decoder;
  LinearAttention linear = LinearAttention::none;  ///< other values: no KV pages, and masks don't apply
  MaskSpec mask;
  int page_size = 0;      ///< tokens per page; 0 = not given, the backend's preferred size is used
  bool has_sink = false;  ///< learned per-head sink logits (AttentionArgs::sinks)
  bool lse_includes_sink = false;
  bool has_alibi = false;   ///< AttentionArgs::alibi_slopes
  bool use_mla = false;     ///< absorbed: num_kv_heads 1, head_dim 576, v_head_dim 512 (docs/architecture.md)
  bool use_sparse = false;  ///< each row sees the keys that AttentionArgs::chosen lists
  /// Without absorption (unabsorbed_spec()): a query head's dimensions without and with RoPE, and those of V.
  int mla_nope_head_dim = 0, mla_rope_head_dim = 0, mla_v_head_dim = 0;
  /// Features needed beyond the fields above: dcp, pcp, kv_connector, per_head_scales, verify, ...
  FeatureSet needs;
  bool fp64_accumulate = false;  ///< TORCH_NATIVE only: the reference of the tests
  int sparse_topk = 0;           ///< use_sparse: entries of each row's list, at least 1

  bool operator==(const AttentionSpec&) const = default;
};

/// The device that kernels would run on.
struct DeviceInfo {
  DeviceKind kind = DeviceKind::cpu;
  int compute_capability = 0;
  std::string name;
  /// Shared memory in bytes per block (CUDA's opt-in maximum); 0 = shared_bytes_of(compute_capability).
  int shared_bytes = 0;
};

/// Maximum shared memory in bytes per block on a CUDA device of this compute capability (10 * major + minor),
/// from the table in the CUDA programming guide. Capabilities not in the table: the 48 KiB of every device; 0
/// for 0.
int shared_bytes_of(int compute_capability);

}  // namespace fovea
