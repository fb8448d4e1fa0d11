#pragma once
// Properties of a compiled kernel, for selection and planning. Host code, without CUDA.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/common/params.h"
#include "kernels/cuda/common/shared_memory.h"

namespace fovea::cuda {

enum class QueryType : uint8_t { f16, bf16, f32 };  ///< f32: of the portable kernels
enum class KernelKind : uint8_t { decode, extend, extend_small };

/// A shared memory limit beyond that of any device: selection then returns the size for Hopper, which kernels
/// are tuned for.
inline constexpr int kAnySharedBytes = 1 << 30;

/// A compiled kernel.
struct KernelInfo {
  KernelKind kind = KernelKind::decode;
  QueryType q = QueryType::bf16;
  KvType kv = KvType::same;  ///< e4m3 also for extend kernels that serve all 8-bit types
  int head_dim = 0, v_head_dim = 0;
  bool general = false;
  int rows = 0;                ///< packed rows of a WorkItem
  int tile_keys = 0;           ///< key_first's divisor
  int split_keys = 0;          ///< keys of a split, which begins at an absolute multiple
  bool fused_combine = false;  ///< combines partial results itself, given AttentionParams::arrivals
  int threads = 0;
  int shared_bytes = 0;       ///< of a CTA, dynamic and static
  int blocks_per_sm = 0;      ///< resident CTAs per SM that a launch assumes
  int stages = 0, ahead = 0;  ///< for AttentionParams; 0 for kernels whose rings have one size

  bool operator==(const KernelInfo&) const = default;
};

/// Sets the shared memory of a CTA, and as many CTAs per SM as fit a device with a limit of `limit` bytes per
/// CTA, at most the policy's number.
template <class P>
constexpr void set_shared(KernelInfo& info, int bytes, int limit) {
  info.shared_bytes = bytes;
  info.blocks_per_sm = std::clamp(blocks_within(limit, bytes), 1, P::kBlocksPerSm);
}

/// Whether `chosen`, sized for some device, is the kernel `compiled` apart from these sizes.
constexpr bool is_same_kernel(KernelInfo chosen, const KernelInfo& compiled) {
  chosen.stages = compiled.stages, chosen.ahead = compiled.ahead;
  chosen.shared_bytes = compiled.shared_bytes, chosen.blocks_per_sm = compiled.blocks_per_sm;
  return chosen == compiled;
}

}  // namespace fovea::cuda
