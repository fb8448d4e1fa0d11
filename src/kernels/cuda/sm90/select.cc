#include "kernels/cuda/sm90/select.h"

#include <algorithm>
#include <string>
#include <vector>

#include "fovea/result.h"
#include "kernels/cuda/sm90/kernels.h"

namespace fovea::cuda::sm90 {
namespace {

using Kernels = std::span<const KernelInfo>;

std::string phase_of(KernelKind kind) {
  return kind == KernelKind::decode ? "decode" : "prefill";
}

std::string name_of(KvType type) {
  switch (type) {
    case KvType::e4m3: return "fp8_e4m3";
    case KvType::e5m2: return "fp8_e5m2";
    case KvType::int8: return "int8_per_token_head";
    default: return "another type than the queries'";
  }
}

bool has_general_mask(const Problem& p) {
  const MaskSpec& m = p.mask;
  return m.window_left >= 0 || (m.window_right >= 0 && !m.causal) || m.chunk > 0 || p.softcap;
}

bool has_scale_arrays(const Problem& p) {
  return p.per_head_scales || p.kv == KvType::int8;
}

/// A feature of the problem that no kernel of this family and kind has; empty: none.
std::string missing(const Problem& p, KernelKind kind) {
  if (p.mask.spans) return "spans";
  if (p.mask.packed) return "packed masks";
  if (p.mask.tree) return "tree masks";
  if (p.alibi) return "ALiBi";
  if (kind == KernelKind::decode && p.per_head_scales) return "scales of each head";
  if (kind != KernelKind::decode && p.softcap && has_scale_arrays(p))
    return p.kv == KvType::int8 ? "soft cap with scales of each token" : "soft cap with scales of each head";
  if (p.negative_scale) return "negative softmax scales";
  if (p.mask.window_left >= 0 && p.mask.sink_tokens > 0) return "sink tokens below a window";
  return {};
}

/// Whether a kernel reads the type. Prefill kernels for fp8 tell e4m3 and e5m2 apart when they run.
bool reads(const KernelInfo& k, KvType kv) {
  return k.kv == kv || (k.kind != KernelKind::decode && k.kv == KvType::e4m3 && kv == KvType::e5m2);
}

/// "64, 96 and 192 with V of 128".
std::string sizes_of(Kernels kernels, KvType kv) {
  std::vector<std::string> sizes;
  for (const KernelInfo& k : kernels) {
    if (!reads(k, kv)) continue;
    std::string size = std::to_string(k.head_dim);
    if (k.v_head_dim != k.head_dim) size += " with V of " + std::to_string(k.v_head_dim);
    if (std::ranges::find(sizes, size) == sizes.end()) sizes.push_back(std::move(size));
  }
  std::string text;
  for (size_t i = 0; i < sizes.size(); ++i)
    text += (i == 0 ? "" : i + 1 == sizes.size() ? " and " : ", ") + sizes[i];
  return text;
}

}  // namespace

Result<KernelInfo> select(const Problem& p, KernelKind kind) {
  const Kernels kernels = kind == KernelKind::decode ? decode_kernels() : prefill_kernels();
  const std::string kernels_name = "the sm90 " + phase_of(kind) + " kernels";
  if (p.q == QueryType::f32) return unsupported("queries are fp32; " + kernels_name + " take fp16 and bf16");
  if (const std::string what = missing(p, kind); !what.empty())
    return unsupported(kernels_name + " have no " + what);
  const bool stored = std::ranges::any_of(kernels, [&](const KernelInfo& k) { return reads(k, p.kv); });
  if (!stored)
    return unsupported(kernels_name + " read no KV cache of " +
                       (p.kv == KvType::same ? "the queries' type" : name_of(p.kv)));
  const bool general = has_general_mask(p);
  const KernelInfo* found = nullptr;
  for (const KernelInfo& k : kernels) {
    const bool fits = k.q == p.q && reads(k, p.kv) && k.head_dim == p.head_dim &&
                      k.v_head_dim == p.v_head_dim && (k.general || !general);
    if (!fits) continue;
    if (found == nullptr) found = &k;
    if (k.kind == kind) {
      found = &k;
      break;
    }
  }
  if (found == nullptr) {
    const std::string sizes =
        std::to_string(p.head_dim) +
        (p.v_head_dim == p.head_dim ? "" : " with V of " + std::to_string(p.v_head_dim));
    return unsupported("head size is " + sizes + "; " + kernels_name + " take " + sizes_of(kernels, p.kv) +
                       (p.kv == KvType::same ? "" : " with " + name_of(p.kv)));
  }
  return *found;
}

}  // namespace fovea::cuda::sm90
