#pragma once
// The policies that are compiled. A problem takes the first of its list that is wide enough; predication
// serves the head sizes in between.
#include <cstddef>
#include <iterator>
#include <utility>

#include "kernels/cuda/common/policy_list.h"
#include "kernels/cuda/sm80/policy.h"

namespace fovea::cuda::sm80 {

/// The policies of an array of shapes.
template <class T, const auto& Shapes, class Indices = std::make_index_sequence<std::size(Shapes)>>
struct PoliciesOf;
template <class T, const auto& Shapes, size_t... I>
struct PoliciesOf<T, Shapes, std::index_sequence<I...>> {
  template <DecodeShape S>
  static DecodePolicy<T, S> policy();
  template <NarrowShape S>
  static NarrowPolicy<T, S> policy();
  template <ExtendShape S>
  static ExtendPolicy<T, S> policy();
  using List = PolicyList<decltype(policy<Shapes[I]>())...>;
};

// Stages fill the shared memory of an SM: with two CTAs up to D = 192, with one beyond. A device with less of
// it has fewer stages (DecodePolicy::stages_within).
template <bool General>
inline constexpr DecodeShape kDecode16[] = {
    {.head_dim = 64, .stages = 6, .general = General},
    {.head_dim = 96, .stages = 3, .general = General},
    {.head_dim = 128, .stages = 3, .general = General},
    {.head_dim = 192, .v_head_dim = 128, .stages = 2, .general = General},
    {.head_dim = 256, .stages = 3, .general = General},
    {.head_dim = 512, .warps = 2, .value_parts = 2, .stages = 4, .general = General},
};
template <KvType Kv, bool General>
inline constexpr DecodeShape kDecode8[] = {
    {.head_dim = 64, .kv = Kv, .stages = 6, .general = General},
    {.head_dim = 128, .kv = Kv, .stages = 3, .general = General},
    {.head_dim = 256, .kv = Kv, .stages = 3, .general = General},
};
template <class T, bool General>
using Decode16 = typename PoliciesOf<T, kDecode16<General>>::List;
template <class T, KvType Kv, bool General>
using Decode8 = typename PoliciesOf<T, kDecode8<Kv, General>>::List;

// For few sequences.
template <bool General>
inline constexpr NarrowShape kNarrow16[] = {
    {.head_dim = 64, .general = General},
    {.head_dim = 128, .general = General},
};
template <KvType Kv>
inline constexpr NarrowShape kNarrow8[] = {
    {.head_dim = 128, .kv = Kv},
};
template <class T, bool General>
using Narrow16 = typename PoliciesOf<T, kNarrow16<General>>::List;
template <class T, KvType Kv>
using Narrow8 = typename PoliciesOf<T, kNarrow8<Kv>>::List;

/// Long prefills: 32 rows a warp where O fits the registers, so that a fragment of K or V serves four
/// products.
inline constexpr ExtendShape kExtendLarge[] = {
    {.head_dim = 64, .row_tiles = 2, .slots = 4, .ahead = 2, .query_register_steps = 4, .blocks_per_sm = 2},
    {.head_dim = 80, .row_tiles = 2, .warps = 8, .slots = 12, .ahead = 6},
    {.head_dim = 96, .row_tiles = 2, .warps = 8, .slots = 12, .ahead = 6},
    {.head_dim = 128, .row_tiles = 2, .warps = 8, .slots = 10, .ahead = 4},
    {.head_dim = 192, .v_head_dim = 128, .row_tiles = 2, .warps = 8, .slots = 5, .ahead = 3},
    {.head_dim = 256, .warps = 8, .slots = 4, .ahead = 2},
    {.head_dim = 512, .warps = 8, .value_parts = 2, .tile_keys = 32, .slots = 4, .ahead = 2},
};
/// The same sums in tiles of 64 rows, for short extends.
inline constexpr ExtendShape kExtendSmall[] = {
    {.head_dim = 64, .slots = 4, .ahead = 2, .blocks_per_sm = 2},
    {.head_dim = 80, .slots = 4, .ahead = 2, .blocks_per_sm = 2},
    {.head_dim = 96, .slots = 4, .ahead = 2, .blocks_per_sm = 2},
    {.head_dim = 128, .slots = 4, .ahead = 2, .blocks_per_sm = 2},
};
inline constexpr ExtendShape kExtendGeneral[] = {
    {.head_dim = 64, .slots = 4, .ahead = 2, .blocks_per_sm = 2, .general = true},
    {.head_dim = 128, .slots = 4, .ahead = 2, .blocks_per_sm = 2, .general = true},
    {.head_dim = 256, .warps = 8, .tile_keys = 32, .slots = 8, .ahead = 4, .general = true},
    {.head_dim = 512, .warps = 8, .value_parts = 2, .tile_keys = 16, .slots = 8, .ahead = 4, .general = true},
};
inline constexpr ExtendShape kExtendEightBit[] = {
    {.head_dim = 64, .eight_bit = true, .row_tiles = 2, .warps = 8, .slots = 12, .ahead = 6},
    {.head_dim = 128, .eight_bit = true, .row_tiles = 2, .warps = 8, .slots = 8, .ahead = 4},
    {.head_dim = 256, .eight_bit = true, .warps = 8, .tile_keys = 32, .slots = 6, .ahead = 4},
    {.head_dim = 64, .eight_bit = true, .slots = 8, .ahead = 4, .general = true},
    {.head_dim = 128, .eight_bit = true, .slots = 6, .ahead = 4, .general = true},
    {.head_dim = 256,
     .eight_bit = true,
     .warps = 8,
     .tile_keys = 32,
     .slots = 6,
     .ahead = 4,
     .general = true},
};

// The same keys in a tile and half the rows, for CTAs that have no room for a ring beside the queries of the
// shapes above (sm_86, sm_89 and sm_120, with 99 KiB). The sums are the same.
inline constexpr ExtendShape kExtendCompact[] = {
    {.head_dim = 256, .slots = 2, .ahead = 1},
    {.head_dim = 512, .value_parts = 2, .tile_keys = 32, .slots = 2, .ahead = 1},
};
inline constexpr ExtendShape kExtendCompactGeneral[] = {
    {.head_dim = 256, .tile_keys = 32, .slots = 4, .ahead = 2, .general = true},
    {.head_dim = 512, .value_parts = 2, .tile_keys = 16, .slots = 4, .ahead = 2, .general = true},
};
inline constexpr ExtendShape kExtendCompactEightBit[] = {
    {.head_dim = 128, .eight_bit = true, .slots = 2},
    {.head_dim = 256, .eight_bit = true, .tile_keys = 32, .slots = 2},
    {.head_dim = 256, .eight_bit = true, .tile_keys = 32, .slots = 2, .general = true},
};

template <class T>
using ExtendLarge = typename PoliciesOf<T, kExtendLarge>::List;
template <class T>
using ExtendSmall = typename PoliciesOf<T, kExtendSmall>::List;
template <class T>
using ExtendGeneral = typename PoliciesOf<T, kExtendGeneral>::List;
template <class T>
using ExtendEightBit = typename PoliciesOf<T, kExtendEightBit>::List;
template <class T>
using ExtendCompact = typename PoliciesOf<T, kExtendCompact>::List;
template <class T>
using ExtendCompactGeneral = typename PoliciesOf<T, kExtendCompactGeneral>::List;
template <class T>
using ExtendCompactEightBit = typename PoliciesOf<T, kExtendCompactEightBit>::List;

}  // namespace fovea::cuda::sm80
