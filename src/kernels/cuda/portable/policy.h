#pragma once
// The compile-time parameters of the kernels of this family, and the list of compiled ones.
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

#include "kernels/cuda/common/half_types.h"
#include "kernels/cuda/common/policy_list.h"
#include "kernels/cuda/common/tile_layout.h"

namespace fovea::cuda::portable {

struct Shape {
  int head_dim = 0;     ///< D and Dv at most
  int row_groups = 1;   ///< row groups of a CTA
  int group_rows = 16;  ///< packed rows of a row group
  int group_warps = 1;  ///< warps that share a row group
  int tile_keys = 0;
  int blocks_per_sm = 2;
};

/// kGroupWarps warps compute a row group: each computes the scores of its keys of a tile, all of them use all
/// scores, and each has its part of the columns of V and O. How rows are distributed over CTAs and how many
/// warps share a row change no bit of a row: a score is one chain of sums over D, a column of O is one over
/// keys, and every warp of a group computes the same softmax.
template <class Compute, Shape S>
struct Policy {
  using C = Compute;  ///< type of the products: 16 bits on tensor cores, float on CUDA cores
  static constexpr bool kFloat = std::is_same_v<C, float>;
  static constexpr int kD = S.head_dim;
  static constexpr int kRowGroups = S.row_groups, kGroupRows = S.group_rows, kGroupWarps = S.group_warps;
  static constexpr int kRows = kRowGroups * kGroupRows;
  static constexpr int kThreads = 32 * kRowGroups * kGroupWarps;
  static constexpr int kPartD = kD / kGroupWarps;
  static constexpr int kTileKeys = S.tile_keys;
  static constexpr int kBlocksPerSm = S.blocks_per_sm;
  /// Keys of a split, as in sm80's decode kernels; the same for decode and extend, so that their rows have
  /// the same splits.
  static constexpr int kSplitKeys = kD <= 64 ? 1024 : 512;
  static_assert(kTileKeys <= kThreads && kSplitKeys % kTileKeys == 0);

  static constexpr int kElementBytes = kFloat ? 4 : 2;
  static constexpr int kChunk = 16 / kElementBytes;  ///< elements of a 16-byte chunk of shared memory
  static constexpr int kRowChunks = kD / kChunk;
  using Tile = TileLayout<kD * kElementBytes>;

  // Shared memory: queries; a ring of three slots, which alternate between K and V; the offsets of the rows
  // of two tiles; the scales of keys and values of three tiles; scores; probabilities; the keys that each row
  // sees.
  static constexpr int kQueryBytes = kRows * Tile::kPitch;
  static constexpr int kSlots = 3;
  static constexpr int kSlotBytes = kTileKeys * Tile::kPitch;
  static constexpr int kOffsetBytes = 2 * 2 * kTileKeys * 8;
  static constexpr int kFactorBytes = 3 * 2 * kTileKeys * 4;
  /// Floats of a row of scores, padded against bank conflicts of the rows of a fragment (mma) or of a warp
  /// (CUDA cores).
  static constexpr int kScorePitch = kTileKeys + (kFloat ? 4 : 8);
  static constexpr int kScoreBytes = kGroupWarps > 1 ? kRows* kScorePitch * 4 : 0;
  /// Probabilities of a warp: on the CUDA cores they pass through shared memory.
  static constexpr int kProbabilityBytes = kFloat ? kGroupRows * kScorePitch * 4 : 0;
  static constexpr int kRowKeyBytes = kRows * 16;
  static constexpr int kSharedBytes = kQueryBytes + kSlots * kSlotBytes + kOffsetBytes + kFactorBytes +
                                      kScoreBytes + kRowGroups * kGroupWarps * kProbabilityBytes +
                                      kRowKeyBytes;
  static_assert(kSharedBytes <= 99 * 1024 - 256);  // the limit of a CTA on sm_86, sm_89 and sm_120
};

/// The policies of an array of shapes.
template <class C, const auto& Shapes, class Indices = std::make_index_sequence<std::size(Shapes)>>
struct PoliciesOf;
template <class C, const auto& Shapes, size_t... I>
struct PoliciesOf<C, Shapes, std::index_sequence<I...>> {
  using List = PolicyList<Policy<C, Shapes[I]>...>;
};

/// One group of 16 rows against many keys.
inline constexpr Shape kDecode[] = {
    {.head_dim = 64, .group_warps = 4, .tile_keys = 64, .blocks_per_sm = 3},
    {.head_dim = 128, .group_warps = 4, .tile_keys = 64, .blocks_per_sm = 3},
    {.head_dim = 256, .group_warps = 4, .tile_keys = 32, .blocks_per_sm = 3},
    {.head_dim = 512, .group_warps = 4, .tile_keys = 16},
};
/// Many rows. With 32 rows a warp, a fragment of K or V would serve two products, but O and the scores would
/// leave no registers to hide latencies with: on an H200 as fast at D = 128, and spilling.
inline constexpr Shape kExtend[] = {
    {.head_dim = 64, .row_groups = 4, .tile_keys = 64, .blocks_per_sm = 3},
    {.head_dim = 128, .row_groups = 4, .tile_keys = 64, .blocks_per_sm = 3},
    {.head_dim = 256, .row_groups = 4, .tile_keys = 32},
    {.head_dim = 512, .row_groups = 2, .group_warps = 2, .tile_keys = 16},
};
inline constexpr Shape kDecodeFloat[] = {
    {.head_dim = 128, .group_warps = 4, .tile_keys = 32},
    {.head_dim = 256, .group_warps = 4, .tile_keys = 16},
    {.head_dim = 512, .group_warps = 4, .tile_keys = 8},
};
inline constexpr Shape kExtendFloat[] = {
    {.head_dim = 128, .row_groups = 4, .tile_keys = 32},
    {.head_dim = 256, .row_groups = 2, .group_warps = 2, .tile_keys = 16},
    {.head_dim = 512, .group_warps = 4, .tile_keys = 8},
};

template <class T>
using Decode = typename PoliciesOf<T, kDecode>::List;
template <class T>
using Extend = typename PoliciesOf<T, kExtend>::List;
using DecodeFloat = typename PoliciesOf<float, kDecodeFloat>::List;
using ExtendFloat = typename PoliciesOf<float, kExtendFloat>::List;

}  // namespace fovea::cuda::portable
