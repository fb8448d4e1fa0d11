#pragma once
// Decode of up to P::kRows packed query rows of a sequence against its keys, split at absolute multiples of
// P::kSplitKeys. A persistent block takes unit after unit (an item under one KV head), its loads running
// ahead into the next.
#include "kernels/cuda/sm80/decode_narrow_epilogue.cuh"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda::sm80 {

template <class P>
__global__ __launch_bounds__(P::kThreads, P::kBlocksPerSm) void decode_narrow_kernel(
    const __grid_constant__ AttentionParams params) {
  extern __shared__ __align__(128) char shared[];
  grid_launch_dependents();
  NarrowEpilogue<P> epilogue(params, shared + 2 * P::kQueryBytes);
  const int stride = static_cast<int>(gridDim.x);
  const auto index_of = [&](int u) { return params.kv_heads.quotient(u); };
  // Read again (from L1) rather than kept: registers are for what is in flight.
  const auto item_of = [&](int u) {
    asm volatile("" : "+r"(u));
    return params.items[index_of(u)];
  };
  const auto head_of = [&](int u) { return u - index_of(u) * static_cast<int>(params.kv_heads.divisor); };
  int unit = static_cast<int>(blockIdx.x);
  grid_dependency_wait();
  // A launch has no more blocks than items could be, so the first item may be read before their number is
  // known.
  const WorkItem first = params.items[index_of(unit)];
  const int num_units = *params.num_items * static_cast<int>(params.kv_heads.divisor);
  if (unit >= num_units) return;
  NarrowLoader<P> loader(params, num_units, first);
  if (loader.more()) {
    loader.begin();
    loader.load_k();
    loader.load_v();
  }
  NarrowQuery<P> query(shared);
  query.load(params, first, head_of(unit));
  const int warp_key = static_cast<int>(threadIdx.x) / 32 * P::kWarpKeys;
  for (;; unit += stride) {
    const bool more = unit + stride < num_units;
    query.finish();
    // The next unit's queries arrive during this one.
    if (more) query.load(params, item_of(unit + stride), head_of(unit + stride));
    const WorkItem item = item_of(unit);
    NarrowTile<P> tile(params, item);
    tile.sum[0] = tile.sum[1] = sum_of(item, 0.0f);  // here, where n_k is at hand: registers are few
    const int key_last = item.key_last;
    for (int key = item.key_first; key < key_last; key += P::kTileKeys) {
      float s[P::kKeyTiles][4];
      tile.scores(s, loader, query);
      const float k_scale = loader.k_scale, v_scale = loader.v_scale;
      const bool loading = loader.more();
      if (loading) {
        loader.begin();
        loader.load_k();
      }
      tile.softmax(s, params, unit, query.factor, key + warp_key, k_scale, v_scale);
      tile.values(s, loader);
      if (loading) loader.load_v();
    }
    if (!more) {
      // No loads are under way whose registers would be in the way.
      epilogue.template unit<kCombineFanIn>(item_of(unit), head_of(unit), tile);
      return;
    }
    epilogue.template unit<kCombineStep>(item_of(unit), head_of(unit), tile);
  }
}

}  // namespace fovea::cuda::sm80
