#pragma once
// Launching one prefill policy.
#include <algorithm>
#include <atomic>
#include <bit>

#include "kernels/cuda/sm90/launch-inl.cuh"
#include "kernels/cuda/sm90/prefill_info.h"
#include "kernels/cuda/sm90/prefill_kernel.cuh"
#include "kernels/cuda/sm90/prefill_loads.h"
#include "kernels/cuda/tiles/map_stride.h"
#include "kernels/cuda/tiles/tensor_map.h"

namespace fovea::cuda::sm90 {

/// A box {64 dims, box_keys rows} of [page][head][slot][dim], wherever those lie.
inline Status encode_keys(CUtensorMap& map, CUtensorMapDataType type, const KvParams& kv, bool values,
                          int head_dim, int heads, int box_keys) {
  const int64_t page_stride = values ? kv.v_page_stride : kv.k_page_stride;
  const int64_t slot_stride = values ? kv.v_slot_stride : kv.k_slot_stride;
  const int64_t head_stride = values ? kv.v_head_stride : kv.k_head_stride;
  const bool paged = kv.pages != nullptr;
  // Page ids are trusted, so that the number of pages is not needed.
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

/// Of an H200's 60 MiB of L2, which it keeps in two halves that both hold what all blocks read.
inline constexpr int kSectionBytes = 32 << 20;

/// tanh(x) = x (c0 + c1 x^2 + c2 x^4), relative error 1.1e-6 up to x = 0.3. Of e^(c tanh(x)) with x below
/// -0.3 it loses no more than 5e-8 where c is 25 or more, 9e-9 where it is 30: a sum of 1e-2 for each of a
/// row's keys hides that.
inline PrefillCap prefill_cap(float scale, float softcap, bool follow) {
  constexpr double kSmall = 0.3, kTerms[] = {0.9999988557195232, -0.33310171170010583, 0.12635606410694902};
  constexpr float kOneSide = 25.0f;
  // A sum of 2^20 keys fits fp32 at 2^90 each; nothing that is above 2^-120 is lost.
  constexpr float kHighest = 90.0f, kLowest = -120.0f;
  const double x = double{scale} / double{softcap}, limit = double{softcap} * double{kLog2e};
  PrefillCap cap;
  cap.limit = static_cast<float>(limit);
  cap.scale = static_cast<float>(2.0 * double{kLog2e} * x);
  cap.small = std::bit_cast<int>(static_cast<float>(std::min(kSmall / x, 1e38)));
  double power = limit * x;
  for (int i = 0; i < 3; ++i, power *= x * x)
    cap.terms[i] = static_cast<float>(kTerms[i] * power);
  cap.both_sides = softcap < kOneSide;
  cap.enough = 1e-2f;
  cap.least_base = cap.limit - kHighest;
  cap.moves = follow || -cap.limit - cap.least_base < kLowest;
  return cap;
}

template <class P>
Status fill_params(const AttentionParams& p, PrefillParams& a) {
  constexpr auto type = std::is_same_v<typename P::Q, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                              : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  a.p = p;
  a.scale = p.scale * kLog2e;
  a.cap = p.mask.softcap > 0.0f ? prefill_cap(p.scale, p.mask.softcap, std::is_same_v<typename P::Q, __half>)
                                : PrefillCap{};
  const int group = static_cast<int>(p.group.divisor), heads = static_cast<int>(p.kv_heads.divisor);
  a.loads.query_boxes = query_boxes(p, P::kRows);
  a.loads.box_keys = box_keys_of(p.kv, P::kTileKeys, heads);
  a.loads.key_boxes = a.loads.box_keys > 0;
  a.loads.warps = a.loads.box_keys * 2 > P::kTileKeys ? 1 : 4;
  a.section_keys = kSectionBytes / ((P::kD + P::kDv) * 2);
  if (a.loads.query_boxes) {
    const auto tokens = static_cast<uint32_t>(P::kRows / group);
    // Boxes lie within a sequence's rows, so that the tensor's end needs no saying.
    FOVEA_RETURN_IF_ERROR(encode_tensor_map(
        {type,
         p.q,
         {static_cast<uint64_t>(p.head_dim), static_cast<uint64_t>(heads * group), uint64_t{1} << 31},
         {map_stride(int64_t{p.q_rows.head_stride} * 2, static_cast<uint64_t>(heads * group)),
          static_cast<uint64_t>(p.q_rows.row_stride) * 2},
         {kPanelDims, static_cast<uint32_t>(group), tokens}},
        a.q));
  }
  if (!a.loads.key_boxes) return {};
  FOVEA_RETURN_IF_ERROR(encode_keys(a.k, type, p.kv, false, p.head_dim, heads, a.loads.box_keys));
  return encode_keys(a.v, type, p.kv, true, p.v_head_dim, heads, a.loads.box_keys);
}

using PrefillKernel = void (*)(PrefillParams);
/// By PrefillWay.
template <class P>
inline constexpr PrefillKernel kPrefillKernels[] = {
    prefill_kernel<P, PrefillWay::boxes>, prefill_kernel<P, PrefillWay::rows>,
    prefill_kernel<P, PrefillWay::capped_boxes>, prefill_kernel<P, PrefillWay::capped_rows>};

template <class P>
cudaError_t allow_shared() {
  for (const PrefillKernel kernel : kPrefillKernels<P>) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, P::kSharedBytes);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

/// Once for each policy and device: lets its kernels have more shared memory than 48 KiB.
template <class P>
void prepare_prefill(Launch& l) {
  constexpr int kDevices = 64;
  static std::atomic<bool> prepared[kDevices];
  int device = 0;
  l.check(cudaGetDevice(&device), "cudaGetDevice");
  if (!l.error.empty() || (device < kDevices && prepared[device].load(std::memory_order_acquire))) return;
  l.check(allow_shared<P>(), "shared memory of a prefill kernel");
  if (l.error.empty() && device < kDevices) prepared[device].store(true, std::memory_order_release);
}

template <class P>
cudaError_t queue_prefill(const PrefillParams& a, int blocks, Launch& l) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(P::kThreads);
  config.dynamicSmemBytes = P::kSharedBytes;
  config.stream = l.stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const bool caps = a.cap.limit > 0.0f;
  const PrefillWay way = a.loads.key_boxes ? (caps ? PrefillWay::capped_boxes : PrefillWay::boxes)
                                           : (caps ? PrefillWay::capped_rows : PrefillWay::rows);
  l.record.variant = static_cast<uint8_t>(way);
  return cudaLaunchKernelEx(&config, kPrefillKernels<P>[static_cast<int>(way)], a);
}

template <class P>
bool launch_prefill_policy(Launch& l) {
  if (!is_prefill<P>(l.kernel)) return false;
  prepare_prefill<P>(l);
  if (!l.error.empty()) return true;
  if (l.units() > INT32_MAX / 2) {
    l.error = "a step of " + std::to_string(l.units()) + " attention tiles; at most 1073741823 fit a launch";
    return true;
  }
  PrefillParams a;
  if (const Status status = fill_params<P>(l.params, a); !status.ok()) {
    l.error = status.error().message;
    return true;
  }
  const int blocks = static_cast<int>(std::min<int64_t>(l.units(), l.multiprocessors));
  l.check(queue_prefill<P>(a, blocks, l), "launch of a prefill kernel");
  return true;
}

}  // namespace fovea::cuda::sm90
