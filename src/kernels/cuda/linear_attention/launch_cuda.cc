#include "kernels/cuda/linear_attention/launch.h"

#include <cmath>
#include <string>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/linear_attention/params.h"

namespace fovea::cuda {
namespace {

RecurrenceParams params_of(const GatedDeltaRule& c, bool delta) {
  RecurrenceParams p;
  p.q = c.q;
  p.k = c.k;
  p.v = c.v;
  p.out = c.out;
  p.offsets = c.sequences.offsets;
  p.seqs = c.sequences.count;
  p.tokens = c.sequences.tokens;
  p.max_len = c.sequences.max_len > 0 ? c.sequences.max_len : c.sequences.tokens;
  p.heads = c.heads;
  p.group = c.heads / c.k_heads;
  p.dk = c.dk;
  p.dv = c.dv;
  p.g = c.g;
  p.g_stride = c.g_stride;
  p.beta = c.beta;
  p.beta_stride = c.beta_stride;
  p.scale = c.scale != 0.0f ? c.scale : 1.0f / std::sqrt(static_cast<float>(c.dk));
  p.delta = delta;
  p.normalize = delta && c.normalize_qk;
  p.states = c.states;
  p.dtype = c.dtype;
  return p;
}

std::string shape_of(DType dtype, int dk, int dv) {
  return std::string(to_string(dtype)) + " with head sizes " + std::to_string(dk) + " and " +
         std::to_string(dv);
}

Status launch(const RecurrenceParams& p, LinearForm form, CudaStream& stream) {
  if (p.dv % 4 != 0)
    return unsupported("dv is " + std::to_string(p.dv) + "; on a GPU it must be a multiple of 4");
  for (const void* state : {static_cast<const void*>(p.states.in), static_cast<const void*>(p.states.out)})
    if (reinterpret_cast<uintptr_t>(state) % 16 != 0)
      return invalid("a state begins at an address that is not a multiple of 16 bytes; align it");
  if (p.seqs == 0) return {};
  if (int64_t{p.seqs} * p.heads * ((p.dv + 127) / 128) > INT32_MAX)
    return unsupported(std::to_string(p.seqs) + " sequences of " + std::to_string(p.heads) +
                       " heads are too many for one call; split the batch");
  if (form == LinearForm::recurrent) {
    FOVEA_CUDA_TRY(launch_recurrent(p, stream.handle()));
    return {};
  }
  if (!has_chunked(p))
    return unsupported("the chunked form has no kernel for " + shape_of(p.dtype, p.dk, p.dv) +
                       (p.dk == 128 && p.dv == 128 && p.dtype != DType::f32
                            ? "; rows must be aligned to 16 bytes"
                            : "; it has float16 and bfloat16 with 128") +
                       ": use the recurrent form");
  return launch_chunked(p, stream.handle());
}

}  // namespace

Status launch_lightning(const LightningAttention& call, CudaStream& stream) {
  GatedDeltaRule c;
  c.dtype = call.dtype;
  c.heads = c.k_heads = call.heads;
  c.dk = call.dk;
  c.dv = call.dv;
  c.q = call.q;
  c.k = call.k;
  c.v = call.v;
  c.out = call.out;
  c.sequences = call.sequences;
  c.states = call.states;
  RecurrenceParams p = params_of(c, false);
  p.scale = call.scale;
  p.g = call.log_decay;
  return launch(p, call.form, stream);
}

Status launch_gated_delta(const GatedDeltaRule& call, CudaStream& stream) {
  return launch(params_of(call, true), call.form, stream);
}

Status launch_hstu(const HstuAttention& call, CudaStream& stream) {
  if (call.sequences.count == 0 || call.sequences.tokens == 0) return {};
  if (!has_hstu(call))
    return unsupported("HSTU has no kernel for " + shape_of(call.dtype, call.dk, call.dv) +
                       "; it has float16 and bfloat16 with 64 or 128 for both, rows aligned to 16 bytes");
  if (call.sequences.count > 65535 || call.heads > 65535)
    return unsupported(std::to_string(call.sequences.count) + " sequences of " + std::to_string(call.heads) +
                       " heads are given; up to 65535 of each are possible: split the batch");
  HstuParams p;
  p.call = call;
  if (p.call.alpha == 0.0f) p.call.alpha = 1.0f / std::sqrt(static_cast<float>(call.dk));
  p.max_rows = call.q_offsets == nullptr ? call.sequences.tokens : call.q_tokens;
  const int longest = call.sequences.max_len > 0 ? call.sequences.max_len : call.max_seq_len;
  if (longest < p.max_rows) p.max_rows = longest;
  FOVEA_CUDA_TRY(launch_hstu_tiles(p, stream.handle()));
  return {};
}

}  // namespace fovea::cuda
