#pragma once
// A warp's view of the tiles of few rows: from the grouping kernel's arrays, or found by the warp itself.
#include "kernels/cuda/experts/epilogue.cuh"
#include "kernels/cuda/experts/find_tile.cuh"

namespace fovea::cuda {

/// kDirect: with up to kDirectPairs pairs; `memory` is 32 numbers of shared memory of the warp.
template <bool kDirect>
struct FewRowTiles;

template <>
struct FewRowTiles<false> {
  const GroupedProduct& p;
  FOVEA_DEVICE FewRowTiles(const GroupedProduct& product, int*) : p(product) {}
  FOVEA_DEVICE ExpertTile find(int rows, int columns, int index) const {
    return find_tile(p.groups, rows, columns, index);
  }
  FOVEA_DEVICE int row(int position) const { return p.groups.row[position]; }
  FOVEA_DEVICE float scale(int position) const { return sum_scale(p, position); }
};

template <>
struct FewRowTiles<true> {
  const GroupedProduct& p;
  const int* places;
  DirectOrder order;
  FOVEA_DEVICE FewRowTiles(const GroupedProduct& product, int* memory)
      : p(product), places(memory), order(product.groups, memory) {}
  FOVEA_DEVICE ExpertTile find(int rows, int columns, int index) const {
    return order.tile(rows, columns, index);
  }
  FOVEA_DEVICE int row(int position) const { return places[position] / p.groups.experts_per_token; }
  FOVEA_DEVICE float scale(int position) const { return pair_scale(p, places[position]); }
};

}  // namespace fovea::cuda
