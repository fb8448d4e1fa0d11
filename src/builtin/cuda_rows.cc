#include "builtin/cuda_rows.h"

#include <string>

#include "attention/row.h"
#include "backends/cuda/device_kernel.h"
#include "backends/cuda/kernel_choice.h"

namespace fovea::rows {
namespace {

constexpr int kMaxHeadDim = 512;
constexpr int kMaxEightBitHeadDim = 256;

/// 16-bit caches are read only with queries of the same type (the table refuses 32-bit queries).
bool is_another_type(KvCacheDType stored, DType dtype) {
  return size_of(stored) == 2 && stored != resolve(KvCacheDType::auto_, dtype);
}

}  // namespace

Capability sm80_capability() {
  Capability c;
  c.dtypes = kHalf;
  c.kv_dtypes = kKvHalf | kFp8s | KvDtypes{KvCacheDType::int8_per_token_head};
  c.page_sizes = IntSet::any();
  c.preferred_page_size = 16;
  c.head_dims = IntSet::range(8, kMaxHeadDim, 8);
  c.v_head_dims = c.head_dims;
  c.types = kAllTypes;
  c.features = {Feature::window,      Feature::chunk,      Feature::softcap,        Feature::sink,
                Feature::sink_tokens, Feature::alibi,      Feature::spans,          Feature::packed_mask,
                Feature::verify,      Feature::tree_mask,  Feature::non_causal,     Feature::lse,
                Feature::native_page, Feature::kv_sharing, Feature::per_head_scales};
  c.phases = kBothPhases;
  // Not chunking: the number of query rows of a sequence decides whether its keys are split.
  c.invariance = {Invariance::run, Invariance::batch, Invariance::page_size};
  c.graph = GraphSupport::always;
  c.device = DeviceKind::cuda;
  c.min_compute_capability = 80;
  return c;
}

Capability sm90_capability() {
  Capability c = sm80_capability();
  c.features = c.features.without({Feature::alibi});
  c.min_compute_capability = c.max_compute_capability = 90;
  return c;
}

Capability portable_capability() {
  Capability c = sm80_capability();
  c.dtypes = kFloats;
  c.kv_dtypes.insert(KvCacheDType::float32);
  c.head_dims = c.v_head_dims = IntSet::range(1, kMaxHeadDim);
  c.features.insert(Feature::kv_x_packed);
  c.features.insert(Feature::kv_shuffle);
  return c;
}

std::optional<Reason> check_sm80(const AttentionSpec& spec, const DeviceInfo&) {
  const KvCacheDType stored = resolve(spec.kv_dtype, spec.dtype);
  const std::string name(to_string(stored));
  if (is_another_type(stored, spec.dtype))
    return Reason{"a KV cache of " + name + " beside queries of " + std::string(to_string(spec.dtype)) +
                      " not supported",
                  "--kv-cache-dtype auto: the queries' type"};
  if (size_of(stored) != 1) return {};
  for (const int size : {spec.head_dim, spec.v_head_dim})
    if (size % 16 != 0 || size > kMaxEightBitHeadDim)
      return Reason{"a KV cache of " + name + " with a head size of " + std::to_string(size) +
                        " not supported: 8-bit kernels take multiples of 16 up to " +
                        std::to_string(kMaxEightBitHeadDim),
                    "--kv-cache-dtype auto: the queries' type"};
  return {};
}

std::optional<Reason> check_cuda_kernels(const BackendInfo& info, const AttentionSpec& spec,
                                         const DeviceInfo& device, Phase phase) {
  auto needed = cuda::check_device_kernels(info, spec, device, phase);
  if (!needed) return {};
  return Reason{std::move(*needed),
                "--attention-backend TRITON_ATTN: its kernels need at most 99 KiB a block"};
}

std::optional<KernelFamily> cuda_kernel_family(const BackendInfo& info, const AttentionSpec& spec,
                                               Phase phase) {
  auto [family, why] = cuda::explain_family(info, spec, phase);
  if (why.empty()) return std::nullopt;
  return KernelFamily{to_string(family), std::move(why)};
}

}  // namespace fovea::rows
