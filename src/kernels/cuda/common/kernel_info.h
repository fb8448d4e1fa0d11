#pragma once
// What selection and the planner know of a compiled kernel. Host code, without CUDA.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/common/params.h"
#include "kernels/cuda/common/shared_memory.h"

namespace fovea::cuda {

enum class QueryType : uint8_t { f16, bf16, f32 };  ///< f32: of the portable kernels
enum class KernelKind : uint8_t { decode, extend, extend_small };

/// More than a block of any device may have: what is chosen is then what the kernels are sized for, Hopper's.
inline constexpr int kAnySharedBytes = 1 << 30;

/// A compiled kernel.
struct KernelInfo {
  KernelKind kind = KernelKind::decode;
  QueryType q = QueryType::bf16;
  KvType kv = KvType::same;  ///< extend kernels of 8-bit keys serve all of them and say e4m3
  int head_dim = 0, v_head_dim = 0;
  bool general = false;
  int rows = 0;         ///< packed rows of a WorkItem
  int tile_keys = 0;    ///< key_first's divisor
  int split_keys = 0;   ///< keys of a split, at absolute multiples
  bool merges = false;  ///< parts itself, given AttentionParams::arrivals
  int threads = 0;
  int shared_bytes = 0;       ///< of a block, dynamic and static ones
  int blocks_per_sm = 0;      ///< that a launch counts on
  int stages = 0, ahead = 0;  ///< AttentionParams'; 0 of kernels whose rings have one size

  bool operator==(const KernelInfo&) const = default;
};

/// Of the most blocks that fit a device whose blocks may have `limit` bytes, at most the policy's.
template <class P>
constexpr void set_shared(KernelInfo& info, int bytes, int limit) {
  info.shared_bytes = bytes;
  info.blocks_per_sm = std::clamp(blocks_within(limit, bytes), 1, P::kBlocksPerSm);
}

/// Whether `chosen`, of some device, is the kernel that `compiled` is of any.
constexpr bool is_same_kernel(KernelInfo chosen, const KernelInfo& compiled) {
  chosen.stages = compiled.stages, chosen.ahead = compiled.ahead;
  chosen.shared_bytes = compiled.shared_bytes, chosen.blocks_per_sm = compiled.blocks_per_sm;
  return chosen == compiled;
}

}  // namespace fovea::cuda
