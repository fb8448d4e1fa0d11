#pragma once
// The policies that are compiled. A problem takes the first of its kind that is wide enough; head sizes
// between are served by predication.
#include "kernels/cuda/common/policy_list.h"
#include "kernels/cuda/sm80/policy.h"

namespace fovea::cuda::sm80 {

/// Splits of 512 KiB of keys and values of D = 128: 30 us of one of an H200's 264 blocks under load, against
/// 1 to 2 us that the end of one costs. A single sequence wants smaller ones: see NarrowOf.
constexpr int split_keys(int d, int dv, KvType kv) {
  return (d + dv) * kv_bytes(kv) > 512 ? 512 : kv_bytes(kv) == 1 && d + dv <= 256 ? 2048 : 1024;
}
template <int D, int Dv, class T, KvType Kv, bool General, int Stages, int Warps = 4, int Parts = 1>
using DecodeOf = DecodePolicy<D, Dv, T, Kv, Warps, Parts, Stages, split_keys(D, Dv, Kv), General>;

// Stages fill an SM's shared memory: with two blocks up to D = 192, with one beyond. A device with less of it
// has fewer (DecodePolicy::stages_within).
template <class T, bool General>
using Decode16 = PolicyList<
    DecodeOf<64, 64, T, KvType::same, General, 6>, DecodeOf<96, 96, T, KvType::same, General, 3>,
    DecodeOf<128, 128, T, KvType::same, General, 3>, DecodeOf<192, 128, T, KvType::same, General, 2>,
    DecodeOf<256, 256, T, KvType::same, General, 3>, DecodeOf<512, 512, T, KvType::same, General, 4, 2, 2>>;
template <class T, KvType Kv, bool General>
using Decode8 = PolicyList<DecodeOf<64, 64, T, Kv, General, 6>, DecodeOf<128, 128, T, Kv, General, 3>,
                           DecodeOf<256, 256, T, Kv, General, 3>>;

/// For few sequences: half the split and twice the warps. 8192 keys of 8 heads are 128 splits for an H200's
/// 132 SMs, a block each.
template <int D, int Dv, class T, KvType Kv, bool General, int WarpKeys>
using NarrowOf = NarrowPolicy<D, Dv, T, Kv, 8, WarpKeys, 512, 1, General>;
template <class T, bool General>
using Narrow16 = PolicyList<NarrowOf<64, 64, T, KvType::same, General, 32>,
                            NarrowOf<128, 128, T, KvType::same, General, 32>>;
template <class T, KvType Kv>
using Narrow8 = PolicyList<NarrowOf<128, 128, T, Kv, false, 32>>;

//                       D, Dv, Q, 8-bit, row tiles, warps, parts, keys, slots, ahead, held, blocks, general
/// Long prefills: 32 rows a warp where O fits, so that a fragment of K or V serves four products.
template <class T>
using ExtendLarge = PolicyList<ExtendPolicy<64, 64, T, false, 2, 4, 1, 64, 4, 2, 4, 2, false>,
                               ExtendPolicy<80, 80, T, false, 2, 8, 1, 64, 12, 6, 0, 1, false>,
                               ExtendPolicy<96, 96, T, false, 2, 8, 1, 64, 12, 6, 0, 1, false>,
                               ExtendPolicy<128, 128, T, false, 2, 8, 1, 64, 10, 4, 0, 1, false>,
                               ExtendPolicy<192, 128, T, false, 2, 8, 1, 64, 5, 3, 0, 1, false>,
                               ExtendPolicy<256, 256, T, false, 1, 8, 1, 64, 4, 2, 0, 1, false>,
                               ExtendPolicy<512, 512, T, false, 1, 8, 2, 32, 4, 2, 0, 1, false>>;
/// The same sums in tiles of 64 rows, for short extends.
template <class T>
using ExtendSmall = PolicyList<ExtendPolicy<64, 64, T, false, 1, 4, 1, 64, 4, 2, 0, 2, false>,
                               ExtendPolicy<80, 80, T, false, 1, 4, 1, 64, 4, 2, 0, 2, false>,
                               ExtendPolicy<96, 96, T, false, 1, 4, 1, 64, 4, 2, 0, 2, false>,
                               ExtendPolicy<128, 128, T, false, 1, 4, 1, 64, 4, 2, 0, 2, false>>;
template <class T>
using ExtendGeneral = PolicyList<ExtendPolicy<64, 64, T, false, 1, 4, 1, 64, 4, 2, 0, 2, true>,
                                 ExtendPolicy<128, 128, T, false, 1, 4, 1, 64, 4, 2, 0, 2, true>,
                                 ExtendPolicy<256, 256, T, false, 1, 8, 1, 32, 8, 4, 0, 1, true>,
                                 ExtendPolicy<512, 512, T, false, 1, 8, 2, 16, 8, 4, 0, 1, true>>;
template <class T>
using ExtendEightBit = PolicyList<ExtendPolicy<64, 64, T, true, 2, 8, 1, 64, 12, 6, 0, 1, false>,
                                  ExtendPolicy<128, 128, T, true, 2, 8, 1, 64, 8, 4, 0, 1, false>,
                                  ExtendPolicy<256, 256, T, true, 1, 8, 1, 32, 6, 4, 0, 1, false>,
                                  ExtendPolicy<64, 64, T, true, 1, 4, 1, 64, 8, 4, 0, 1, true>,
                                  ExtendPolicy<128, 128, T, true, 1, 4, 1, 64, 6, 4, 0, 1, true>,
                                  ExtendPolicy<256, 256, T, true, 1, 8, 1, 32, 6, 4, 0, 1, true>>;

/// In half the rows, for blocks with no room for a ring beside the queries of the ones above (sm_86, sm_89
/// and sm_120, with 99 KiB): the same keys in a tile, so that the sums are the same.
template <class T>
using ExtendCompact = PolicyList<ExtendPolicy<256, 256, T, false, 1, 4, 1, 64, 2, 1, 0, 1, false>,
                                 ExtendPolicy<512, 512, T, false, 1, 4, 2, 32, 2, 1, 0, 1, false>>;
template <class T>
using ExtendCompactGeneral = PolicyList<ExtendPolicy<256, 256, T, false, 1, 4, 1, 32, 4, 2, 0, 1, true>,
                                        ExtendPolicy<512, 512, T, false, 1, 4, 2, 16, 4, 2, 0, 1, true>>;
template <class T>
using ExtendCompactEightBit = PolicyList<ExtendPolicy<128, 128, T, true, 1, 4, 1, 64, 2, 0, 0, 1, false>,
                                         ExtendPolicy<256, 256, T, true, 1, 4, 1, 32, 2, 0, 0, 1, false>,
                                         ExtendPolicy<256, 256, T, true, 1, 4, 1, 32, 2, 0, 0, 1, true>>;

}  // namespace fovea::cuda::sm80
