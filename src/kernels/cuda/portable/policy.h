#pragma once
// The numbers that shape the kernels of this family, and which are compiled.
#include <type_traits>

#include "kernels/cuda/common/half_types.h"
#include "kernels/cuda/common/policy_list.h"
#include "kernels/cuda/common/tile_layout.h"

namespace fovea::cuda::portable {

/// A row group of kGroupRows packed rows is the work of kParts warps: each makes the scores of its keys of a
/// tile, all take all scores, and each has its part of the columns of V and O. With one part a warp does all
/// of it. Which rows share a block, and how many warps share a row, change no bit of a row: a score is one
/// chain of sums over D, a column of O one over keys, and every part runs the same softmax.
template <class Compute, int HeadDim, int RowGroups, int GroupRows, int Parts, int TileKeys, int Blocks>
struct Policy {
  using C = Compute;  ///< of the products: 16 bits on the tensor cores, float on the CUDA cores
  static constexpr bool kFloat = std::is_same_v<C, float>;
  static constexpr int kD = HeadDim;  ///< D and Dv at most
  static constexpr int kRowGroups = RowGroups, kGroupRows = GroupRows, kParts = Parts;
  static constexpr int kRows = RowGroups * GroupRows;
  static constexpr int kThreads = 32 * RowGroups * Parts;
  static constexpr int kPartD = HeadDim / Parts;
  static constexpr int kTileKeys = TileKeys;
  static constexpr int kBlocksPerSm = Blocks;
  /// As in sm80's decode kernels; one number for both kinds, so that their rows have the same parts.
  static constexpr int kSplitKeys = HeadDim <= 64 ? 1024 : 512;
  static_assert(kTileKeys <= kThreads && kSplitKeys % kTileKeys == 0);

  static constexpr int kElementBytes = kFloat ? 4 : 2;
  static constexpr int kUnit = 16 / kElementBytes;  ///< elements of 16 bytes of shared memory
  static constexpr int kUnits = HeadDim / kUnit;    ///< of a row
  using Tile = TileLayout<HeadDim * kElementBytes>;

  // Shared memory: queries; a ring of three slots, K and V in turn; where the rows of two tiles lie; factors
  // of keys and values of three tiles; scores; what rows see.
  static constexpr int kQueryBytes = kRows * Tile::kPitch;
  static constexpr int kSlots = 3;
  static constexpr int kSlotBytes = kTileKeys * Tile::kPitch;
  static constexpr int kPlaceBytes = 2 * 2 * kTileKeys * 8;
  static constexpr int kFactorBytes = 3 * 2 * kTileKeys * 4;
  /// Floats of a row of scores: rows of a fragment meet each bank once (mma), rows of a warp don't share one.
  static constexpr int kScorePitch = kTileKeys + (kFloat ? 4 : 8);
  static constexpr int kScoreBytes = kParts > 1 ? kRows* kScorePitch * 4 : 0;
  /// Probabilities, of each warp: on the CUDA cores they pass through shared memory.
  static constexpr int kWeightBytes = kFloat ? GroupRows * kScorePitch * 4 : 0;
  static constexpr int kRowKeyBytes = kRows * 16;
  static constexpr int kSharedBytes = kQueryBytes + kSlots * kSlotBytes + kPlaceBytes + kFactorBytes +
                                      kScoreBytes + RowGroups * Parts * kWeightBytes + kRowKeyBytes;
  static_assert(kSharedBytes <= 99 * 1024 - 256);  // what a block may have on sm_86, sm_89 and sm_120
};

//                    C, D and Dv, row groups, their rows, parts, keys of a tile, blocks of an SM
/// A group of 16 rows against many keys.
template <class T>
using Decode = PolicyList<Policy<T, 64, 1, 16, 4, 64, 3>, Policy<T, 128, 1, 16, 4, 64, 3>,
                          Policy<T, 256, 1, 16, 4, 32, 3>, Policy<T, 512, 1, 16, 4, 16, 2>>;
/// Many rows. With 32 a warp a fragment of K or V would serve two products, but O and the scores would leave
/// no registers to hide latencies with: on an H200 as fast at D = 128, and spilling.
template <class T>
using Extend = PolicyList<Policy<T, 64, 4, 16, 1, 64, 3>, Policy<T, 128, 4, 16, 1, 64, 3>,
                          Policy<T, 256, 4, 16, 1, 32, 2>, Policy<T, 512, 2, 16, 2, 16, 2>>;
using DecodeFloat = PolicyList<Policy<float, 128, 1, 16, 4, 32, 2>, Policy<float, 256, 1, 16, 4, 16, 2>,
                               Policy<float, 512, 1, 16, 4, 8, 2>>;
using ExtendFloat = PolicyList<Policy<float, 128, 4, 16, 1, 32, 2>, Policy<float, 256, 2, 16, 2, 16, 2>,
                               Policy<float, 512, 1, 16, 4, 8, 2>>;

}  // namespace fovea::cuda::portable
