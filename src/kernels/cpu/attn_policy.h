#pragma once
// Constants of the CPU attention kernels. Those marked "bits" determine the order of sums and with it the
// bits of a row; the others affect only scheduling.
#include <cstdint>

#include "fovea/dtype.h"

namespace fovea::attn {

/// Keys per tile (bits). One 64-bit word is a row's mask; 64 keys x 128 floats of K are one L1 cache (32 KiB)
/// and the rescaling of O costs 1 / 64 of the products.
inline constexpr int kTileKeys = 64;

/// Keys per split (bits). A partial result is Dv floats against 2 x D x 1024 elements read for it: 0.1 % more
/// traffic, while a 16K context still gives 16 cores a split each.
inline constexpr int kSplitKeys = 1024;
inline constexpr int kTilesPerSplit = kSplitKeys / kTileKeys;

/// Packed rows (query row x head of a KV group) of a work item. Q, scores, O, widened K and V of 64 rows and
/// D = 128 are 180 KB, inside an L2 of 512 KiB and more; widening a tile is then 5 % of the time; 128 rows
/// gain 1 %.
inline constexpr int kBlockRows = 64;

/// From this many packed rows on, a K/V tile is widened once to fp32 scratch; with fewer (up to two row
/// groups), it is widened in registers, which costs fewer instructions than storing and reloading it.
inline constexpr int kWidenRows = 9;

/// Bytes of K per block of the score loop: half an L1, so that Q fits beside it.
inline constexpr int kScoreBlockBytes = 16 << 10;

/// Rows of a register tile.
inline constexpr int kGroupRows = 4;

/// Vectors of a register tile of P V: with 4 rows, 16 (AVX-512) or 8 accumulators, and half as many loads as
/// products.
template <int kLanes>
inline constexpr int kPanelVecs = kLanes == 16 ? 4 : 2;

/// Scratch slots of a workspace, which is the most threads that work at once; others of the pool stay idle.
inline constexpr int kMaxSlots = 64;

/// Sequences with at most this many query rows may be split over keys (decode, draft verification); longer
/// ones have enough row blocks.
inline constexpr int kMaxSplitTokens = 16;

/// Upper bound of the bytes of partial results in a workspace. A step that would need more is split less.
inline constexpr int64_t kMaxPartialBytes = int64_t{32} << 20;

/// Scratch rows are padded to this many floats for every instruction set, so that all have the same sizes.
inline constexpr int kPadFloats = 16;
inline constexpr int kPadPanel = 64;  // a whole panel of P V

/// The factor that load() of kernels/cpu/simd.h omits: it returns e4m3 times 2^-8, which saves a product per
/// element. The softmax scale and O include the factor; as a power of two it changes no bit.
constexpr float load_factor(KvCacheDType dtype) {
  return dtype == KvCacheDType::fp8_e4m3 ? 256.0f : 1.0f;
}

/// Weights below e^-87 of the largest are 0: e^-87.3 is the least normal float, and subnormal factors cost
/// tens of cycles on some CPUs.
inline constexpr float kMinExponent = -87.0f;

}  // namespace fovea::attn
