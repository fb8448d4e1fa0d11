#pragma once
// Occupancy: how many CTAs fit an SM by their shared memory.

namespace fovea::cuda {

inline constexpr int kMaxSharedBytes = 227 * 1024;  ///< of a CTA on sm_90

/// CTAs with `bytes` of shared memory each that fit an SM whose limit per CTA is `limit` bytes: an SM has 1
/// KiB more than that limit, and each CTA takes 1 KiB more than it requests.
constexpr int blocks_within(int limit, int bytes) {
  return limit > kMaxSharedBytes ? blocks_within(kMaxSharedBytes, bytes) : (limit + 1024) / (bytes + 1024);
}

}  // namespace fovea::cuda
