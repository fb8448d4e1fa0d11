#pragma once
// Launches the kernels of one prefill policy.
#include <algorithm>
#include <atomic>
#include <bit>

#include "fovea/result.h"
#include "kernels/cuda/sm90/launch-inl.cuh"
#include "kernels/cuda/sm90/prefill_info.h"
#include "kernels/cuda/sm90/prefill_kernel.cuh"
#include "kernels/cuda/sm90/prefill_loads.h"
#include "kernels/cuda/tiles/map_stride.h"
#include "kernels/cuda/tiles/tensor_map.h"

namespace fovea::cuda::sm90 {

/// The tensor map of K or V, [page][head][slot][dim] with any strides, for TMA boxes {64 dims, box_keys
/// rows}.
inline Status encode_keys(CUtensorMap& map, CUtensorMapDataType type, const KvParams& kv, bool values,
                          int head_dim, int heads, int box_keys) {
  const int64_t page_stride = values ? kv.v_page_stride : kv.k_page_stride;
  const int64_t slot_stride = values ? kv.v_slot_stride : kv.k_slot_stride;
  const int64_t head_stride = values ? kv.v_head_stride : kv.k_head_stride;
  const bool paged = kv.pages != nullptr;
  // The number of pages is not needed: page ids are trusted.
  const uint64_t dim = static_cast<uint64_t>(head_dim), head = static_cast<uint64_t>(heads);
  const uint64_t slots = paged ? kv.page_size.divisor : static_cast<uint64_t>(kv.rows);
  const uint64_t pages = paged ? uint64_t{1} << 31 : 1;
  return encode_tensor_map({type,
                            values ? kv.v : kv.k,
                            {dim, slots, head, pages},
                            {map_stride(paged ? slot_stride : page_stride, slots),
                             map_stride(head_stride, head), map_stride(page_stride, pages)},
                            {kPanelDims, static_cast<uint32_t>(box_keys), 1, 1}},
                           map);
}

/// K and V of a section of KV heads. An H200 has 60 MiB of L2 in two halves, and both cache what all CTAs
/// read.
inline constexpr int kSectionBytes = 32 << 20;

/// tanh(x) = x (c0 + c1 x^2 + c2 x^4), relative error 1.1e-6 up to x = 0.3. For x below -0.3 the error of
/// e^(c tanh(x)) is at most 5e-8 where c is 25 or more, and 9e-9 where it is 30: negligible beside a row sum
/// of at least 1e-2 per key.
inline PrefillSoftcap prefill_softcap(float scale, float cap, bool updates_row_max) {
  constexpr double kSmall = 0.3, kTerms[] = {0.9999988557195232, -0.33310171170010583, 0.12635606410694902};
  constexpr float kMinOneSided = 25.0f;
  // A sum of 2^20 keys at 2^90 each fits fp32; nothing above 2^-120 is lost.
  constexpr float kMaxExponent = 90.0f, kMinExponent = -120.0f;
  const double x = double{scale} / double{cap}, limit = double{cap} * double{kLog2e};
  PrefillSoftcap softcap;
  softcap.limit = static_cast<float>(limit);
  softcap.scale = static_cast<float>(2.0 * double{kLog2e} * x);
  softcap.small = std::bit_cast<int>(static_cast<float>(std::min(kSmall / x, 1e38)));
  double power = limit * x;
  for (int i = 0; i < 3; ++i, power *= x * x)
    softcap.polynomial[i] = static_cast<float>(kTerms[i] * power);
  softcap.two_sided = cap < kMinOneSided;
  softcap.min_mean_weight = 1e-2f;
  softcap.min_row_max = softcap.limit - kMaxExponent;
  softcap.updates_row_max = updates_row_max || -softcap.limit - softcap.min_row_max < kMinExponent;
  return softcap;
}

template <class P>
Status fill_params(const AttentionParams& p, PrefillParams& a) {
  constexpr auto type = std::is_same_v<typename P::Q, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                              : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  a.p = p;
  a.scale = p.scale * kLog2e;
  a.softcap = p.mask.softcap > 0.0f
                  ? prefill_softcap(p.scale, p.mask.softcap, std::is_same_v<typename P::Q, __half>)
                  : PrefillSoftcap{};
  const int group = static_cast<int>(p.group.divisor), heads = static_cast<int>(p.kv_heads.divisor);
  a.loads.query_by_tma = can_load_query_by_tma(p, P::kRows);
  a.loads.tma_box_keys = tma_box_keys(p.kv, P::kTileKeys, heads);
  a.loads.kv_by_tma = a.loads.tma_box_keys > 0;
  a.loads.warps = a.loads.tma_box_keys * 2 > P::kTileKeys ? 1 : 4;
  if (P::kOwnPace && a.loads.query_by_tma) {
    if (64 % group == 0) a.loads.query_parts = P::kConsumers;
    a.loads.query_warp = a.loads.kv_by_tma && a.loads.warps == 1 ? 1 : 0;
  }
  a.section_keys = kSectionBytes / ((P::kD + P::kDv) * 2);
  if (a.loads.query_by_tma) {
    const auto tokens = static_cast<uint32_t>(P::kRows / a.loads.query_parts / group);
    // The number of rows is not needed: TMA boxes lie within a sequence's rows.
    FOVEA_RETURN_IF_ERROR(encode_tensor_map(
        {type,
         p.q,
         {static_cast<uint64_t>(p.head_dim), static_cast<uint64_t>(heads * group), uint64_t{1} << 31},
         {map_stride(int64_t{p.q_rows.head_stride} * 2, static_cast<uint64_t>(heads * group)),
          static_cast<uint64_t>(p.q_rows.row_stride) * 2},
         {kPanelDims, static_cast<uint32_t>(group), tokens}},
        a.q));
  }
  if (!a.loads.kv_by_tma) return {};
  FOVEA_RETURN_IF_ERROR(encode_keys(a.k, type, p.kv, false, p.head_dim, heads, a.loads.tma_box_keys));
  return encode_keys(a.v, type, p.kv, true, p.v_head_dim, heads, a.loads.tma_box_keys);
}

using PrefillKernel = void (*)(PrefillParams);
/// Null: a variant that the policy does not have.
template <class P>
PrefillKernel kernel_of(PrefillVariant variant) {
  if constexpr (P::kTokenScales) {
    return variant.index() == 0 ? prefill_kernel<P, LoadMode::tma, false> : nullptr;
  } else {
    constexpr PrefillKernel kKernels[] = {
        prefill_kernel<P, LoadMode::tma, false>, prefill_kernel<P, LoadMode::cp_async, false>,
        prefill_kernel<P, LoadMode::tma, true>, prefill_kernel<P, LoadMode::cp_async, true>};
    return kKernels[variant.index()];
  }
}

template <class P>
cudaError_t set_max_shared_memory() {
  for (const PrefillVariant variant : kPrefillVariants) {
    const PrefillKernel kernel = kernel_of<P>(variant);
    if (kernel == nullptr) continue;
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, P::kSharedBytes);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

/// Allows the kernels more than 48 KiB of shared memory, once for each policy and device.
template <class P>
void prepare_prefill(Launch& l) {
  constexpr int kDevices = 64;
  static std::atomic<bool> prepared[kDevices];
  int device = 0;
  l.check(cudaGetDevice(&device), "cudaGetDevice");
  if (!l.error.empty() || (device < kDevices && prepared[device].load(std::memory_order_acquire))) return;
  l.check(set_max_shared_memory<P>(), "shared memory of a prefill kernel");
  if (l.error.empty() && device < kDevices) prepared[device].store(true, std::memory_order_release);
}

template <class P>
cudaError_t queue_prefill(const PrefillParams& a, int ctas, Launch& l) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(P::kThreads);
  config.dynamicSmemBytes = P::kSharedBytes;
  config.stream = l.stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const PrefillVariant variant{a.loads.kv_by_tma ? LoadMode::tma : LoadMode::cp_async,
                               a.softcap.limit > 0.0f};
  l.record.variant = variant.index();
  const PrefillKernel kernel = kernel_of<P>(variant);
  return kernel == nullptr ? cudaErrorInvalidDeviceFunction : cudaLaunchKernelEx(&config, kernel, a);
}

template <class P>
bool launch_prefill_policy(Launch& l) {
  if (!is_prefill<P>(l.kernel)) return false;
  prepare_prefill<P>(l);
  if (!l.error.empty()) return true;
  if (l.work_tiles() > INT32_MAX / 2) {
    l.error =
        "a step of " + std::to_string(l.work_tiles()) + " attention tiles; at most 1073741823 fit a launch";
    return true;
  }
  PrefillParams a;
  if (const Status status = fill_params<P>(l.params, a); !status.ok()) {
    l.error = status.error().message;
    return true;
  }
  const int ctas = static_cast<int>(std::min<int64_t>(l.work_tiles(), l.multiprocessors));
  l.check(queue_prefill<P>(a, ctas, l), "launch of a prefill kernel");
  return true;
}

}  // namespace fovea::cuda::sm90
