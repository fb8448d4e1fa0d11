#pragma once
// Decode for few sequences: up to P::kRows packed query rows of a sequence against its keys, split at
// absolute multiples of P::kSplitKeys. Persistent CTAs take work tiles (a WorkItem under one KV head) by
// stride; their loads are prefetched across work tiles.
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
  // Read again (from L1) rather than kept: registers are needed for loads in flight.
  const auto item_of = [&](int u) {
    asm volatile("" : "+r"(u));
    return params.items[index_of(u)];
  };
  const auto head_of = [&](int u) { return u - index_of(u) * static_cast<int>(params.kv_heads.divisor); };
  int work_index = static_cast<int>(blockIdx.x);
  grid_dependency_wait();
  // The grid is no larger than the number of work tiles that can exist, so the first item may be read before
  // their number is known.
  const WorkItem first = params.items[index_of(work_index)];
  const int num_work_tiles = *params.num_items * static_cast<int>(params.kv_heads.divisor);
  if (work_index >= num_work_tiles) return;
  NarrowLoader<P> loader(params, num_work_tiles, first);
  if (loader.more()) {
    loader.begin();
    loader.load_k();
    loader.load_v();
  }
  NarrowQuery<P> query(shared);
  query.load(params, first, head_of(work_index));
  const int warp_key = static_cast<int>(threadIdx.x) / 32 * P::kWarpKeys;
  for (;; work_index += stride) {
    const bool more = work_index + stride < num_work_tiles;
    query.finish();
    // The queries of the next work tile arrive during this one.
    if (more) query.load(params, item_of(work_index + stride), head_of(work_index + stride));
    const WorkItem item = item_of(work_index);
    NarrowTile<P> tile(params, item);
    // Set here, where n_k is in a register: registers are scarce.
    tile.row_sum[0] = tile.row_sum[1] = sum_of(item, 0.0f);
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
      tile.online_softmax(s, params, work_index, query.factor, key + warp_key, k_scale, v_scale);
      tile.values(s, loader);
      if (loading) loader.load_v();
    }
    if (!more) {
      // No loads are in flight, so their registers are free for the combine.
      epilogue.template store<kCombineFanIn>(item_of(work_index), head_of(work_index), tile);
      return;
    }
    epilogue.template store<kCombineStep>(item_of(work_index), head_of(work_index), tile);
  }
}

}  // namespace fovea::cuda::sm80
