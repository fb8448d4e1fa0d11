#include "c_api/spec.h"

#include <climits>
#include <cmath>
#include <cstring>
#include <string>

#include "attention/batch_check.h"
#include "c_api/cache_view.h"
#include "c_api/structs.h"
#include "c_api/tensor.h"

namespace fovea::c_api {
namespace {

// Larger than in any model, and small enough that no product of them overflows.
constexpr int kMaxHeads = 1 << 16, kMaxHeadDim = 1 << 16;
constexpr int kMaxSeqs = 1 << 20;

fovea_attention_spec defaults() {
  fovea_attention_spec spec = {};
  spec.size = sizeof(spec);
  spec.page_size = 16;
  spec.causal = 1;
  spec.window_left = spec.window_right = -1;
  return spec;
}

Status check_between(int64_t value, const char* name, int64_t least, int64_t most) {
  if (value >= least && value <= most) return {};
  return invalid(std::string(name) + " is " + std::to_string(value) + "; it must be " +
                 std::to_string(least) + " to " + std::to_string(most));
}

Status check_encoder(const fovea_attention_spec& s) {
  if (s.encoder == 0) return {};
  if (s.causal != 0) return invalid("causal is 1 with encoder; an encoder is bidirectional: set causal to 0");
  if (s.page_size != 1)
    return invalid("page_size is " + std::to_string(s.page_size) +
                   " with encoder; its keys are rows of a ragged tensor: set page_size to 1");
  return {};
}

Status check_mla(const fovea_attention_spec& s) {
  FOVEA_RETURN_IF_ERROR(check_between(s.sparse_topk, "sparse_topk", 0, INT_MAX));
  if (s.mla == 0) {
    if (s.sparse_topk == 0) return {};
    return invalid("sparse_topk is " + std::to_string(s.sparse_topk) + " without mla; only MLA lists keys");
  }
  if (s.num_kv_heads != 1)
    return invalid("num_kv_heads is " + std::to_string(s.num_kv_heads) +
                   " with mla; all heads share one record: set it to 1");
  if (s.v_head_dim < 1 || s.v_head_dim > s.head_dim)
    return invalid("v_head_dim is " + std::to_string(s.v_head_dim) + " with mla and head_dim " +
                   std::to_string(s.head_dim) +
                   "; it is the latent's size (512), and head_dim that of the whole record (576)");
  if (s.scale == 0.0f)
    return invalid("scale is 0 with mla; give that of the heads before absorption (192^-0.5 for 128 + 64)");
  return {};
}

}  // namespace

Result<AttentionSpec> read_spec(const fovea_attention_spec* given) {
  FOVEA_TRY(s, read_struct(given, defaults(), kSpecSize1, "fovea_attention_spec"));
  FOVEA_RETURN_IF_ERROR(check_between(s.num_heads, "num_heads", 1, kMaxHeads));
  FOVEA_RETURN_IF_ERROR(check_between(s.num_kv_heads, "num_kv_heads", 1, kMaxHeads));
  FOVEA_RETURN_IF_ERROR(check_between(s.head_dim, "head_dim", 1, kMaxHeadDim));
  FOVEA_RETURN_IF_ERROR(check_between(s.v_head_dim, "v_head_dim", 0, kMaxHeadDim));
  FOVEA_RETURN_IF_ERROR(check_between(s.page_size, "page_size", 1, 1 << 20));
  FOVEA_RETURN_IF_ERROR(check_encoder(s));
  FOVEA_RETURN_IF_ERROR(check_mla(s));
  const Element element = element_of(s.dtype);
  if (element != Element::f32 && element != Element::f16 && element != Element::bf16)
    return invalid("dtype has code " + std::to_string(s.dtype.code) + ", " + std::to_string(s.dtype.bits) +
                   " bits and " + std::to_string(s.dtype.lanes) +
                   " lanes; it must be float32, float16 or bfloat16 (code 2 or 4) of one lane");
  FOVEA_TRY(kv_dtype, read_kv_dtype(s.kv_dtype));
  AttentionSpec spec;
  spec.num_heads = s.num_heads;
  spec.num_kv_heads = s.num_kv_heads;
  spec.head_dim = s.head_dim;
  spec.v_head_dim = s.v_head_dim == 0 ? s.head_dim : s.v_head_dim;
  spec.scale = s.scale == 0.0f ? 1.0f / std::sqrt(static_cast<float>(s.head_dim)) : s.scale;
  spec.softcap = s.softcap;
  spec.dtype = dtype_of(element);
  spec.kv_dtype = kv_dtype;
  spec.kv_x_packed = s.kv_x_packed != 0;
  spec.kv_shuffle = s.kv_shuffle != 0;
  spec.type = s.encoder != 0 ? AttentionType::encoder_only : AttentionType::decoder;
  spec.mask = {s.causal != 0, s.window_left, s.window_right,     s.chunk,
               s.sink_tokens, s.spans != 0,  s.packed_mask != 0, s.tree != 0};
  spec.page_size = s.page_size;
  spec.has_sink = s.has_sink != 0;
  spec.lse_includes_sink = s.lse_includes_sink != 0;
  spec.has_alibi = s.has_alibi != 0;
  spec.use_mla = s.mla != 0;
  spec.use_sparse = s.sparse_topk > 0;
  spec.sparse_topk = s.sparse_topk;
  if (s.per_head_scales != 0) spec.needs.insert(Feature::per_head_scales);
  FOVEA_RETURN_IF_ERROR(check_spec(spec));
  return spec;
}

Result<AttentionLimits> read_limits(const fovea_limits* given) {
  FOVEA_TRY(l, read_struct(given, fovea_limits{}, kLimitsSize1, "fovea_limits"));
  FOVEA_RETURN_IF_ERROR(check_between(l.max_seqs, "max_seqs", 1, kMaxSeqs));
  FOVEA_RETURN_IF_ERROR(check_between(l.max_tokens, "max_tokens", 1, INT_MAX));
  FOVEA_RETURN_IF_ERROR(check_between(l.max_kv_len, "max_kv_len", 1, INT_MAX));
  FOVEA_RETURN_IF_ERROR(check_between(l.max_kv_tokens, "max_kv_tokens", 1, int64_t{1} << 40));
  FOVEA_RETURN_IF_ERROR(check_between(l.tune_for, "tune_for", FOVEA_TUNE_FOR_LIMITS, FOVEA_TUNE_FOR_FEW));
  return AttentionLimits{l.max_seqs, l.max_tokens, l.max_kv_tokens, l.max_kv_len,
                         static_cast<TuneFor>(l.tune_for)};
}

}  // namespace fovea::c_api

/// Fills the ABI 1 fields, which every program has, whichever header it was compiled with. Later fields
/// default to zero, which a newer program must set itself.
void fovea_attention_spec_init(fovea_attention_spec* spec) {
  if (spec == nullptr) return;
  fovea_attention_spec first = fovea::c_api::defaults();
  first.size = fovea::c_api::kSpecSize1;
  std::memcpy(spec, &first, fovea::c_api::kSpecSize1);
}
