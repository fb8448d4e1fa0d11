#pragma once
// How many blocks an SM holds by their shared memory.

namespace fovea::cuda {

inline constexpr int kMaxSharedBytes = 227 * 1024;  ///< of a block on sm_90

/// Blocks of an SM whose blocks may have `limit` bytes of shared memory each, of `bytes` each: an SM has 1
/// KiB more than a block may have, and each of its blocks takes 1 KiB more than it asks for.
constexpr int blocks_within(int limit, int bytes) {
  return limit > kMaxSharedBytes ? blocks_within(kMaxSharedBytes, bytes) : (limit + 1024) / (bytes + 1024);
}

}  // namespace fovea::cuda
