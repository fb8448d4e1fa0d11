#pragma once
// The producer warpgroup of the Hopper kernel: one warp loads keys by TMA, three load queries by cp.async.
#include "kernels/cuda/mla/sm90_shared.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/tma.cuh"

namespace fovea::cuda::mla {

template <class Query>
class Sm90Producer {
 public:
  __device__ Sm90Producer(const Sm90Params& a, Sm90Shared shared)
      : a_(a),
        shared_(shared),
        warp_(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32 % 4, 0)),
        lane_(lane_id()) {}

  __device__ void run() {
    const int num_items = *a_.p.num_items, step = static_cast<int>(gridDim.x);
    int index = static_cast<int>(blockIdx.x);
    WorkItem item =
        a_.p.items[index];  // while their number is on its way: the grid has no more than max_items
    for (; index < num_items; index += step, item = a_.p.items[min(index, num_items - 1)]) {
      if (item.key_first >= item.key_last) continue;
      if (warp_ == 0)
        load_keys(item);
      else
        load_query(item);
    }
  }

 private:
  static constexpr int kTile = Sm90Policy::kTileKeys;
  static constexpr int kPanelBytes = Sm90Policy::kPanelBytes;

  /// The page and slot of the first key of a TMA box. A ragged cache is one page.
  struct Location {
    int page, slot;
  };
  __device__ Location locate(const WorkItem& item, int key) const {
    if (key >= item.key_last) return {0, 0};
    if (a_.p.kv.pages == nullptr) return {0, static_cast<int>(item.pages) + key};
    const int index = a_.p.kv.page_size.quotient(key);
    return {__ldg(a_.p.kv.pages + item.pages + index),
            key - index * static_cast<int>(a_.p.kv.page_size.divisor)};
  }

  __device__ void load_keys(const WorkItem& item) {
    // Lane l looks up boxes l and l + 32 of a tile, one tile ahead.
    Location next[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      next[i] = locate(item, item.key_first + (lane_ + 32 * i) * a_.box_keys);
    for (int key0 = item.key_first; key0 < item.key_last; key0 += kTile, keys_.next()) {
      const Location here[2] = {next[0], next[1]};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int box = lane_ + 32 * i;
        if (box * a_.box_keys < kTile) next[i] = locate(item, key0 + kTile + box * a_.box_keys);
      }
      const int boxes = (min(kTile, item.key_last - key0) + a_.box_keys - 1) / a_.box_keys;
      load_part<Part::right, 4, 5>(here, boxes);
      load_part<Part::left, 0, 4>(here, boxes);
    }
  }

  template <Part kPart, int kFirst, int kPanels>
  __device__ void load_part(const Location (&at)[2], int boxes) {
    const uint32_t full = shared_.full(keys_.slot, kPart), to = shared_.keys(keys_.slot);
    mbarrier_wait(shared_.empty(keys_.slot, kPart), keys_.phase ^ 1);
    if (lane_ == 0)
      mbarrier_arrive_expect_tx(full, static_cast<uint32_t>(boxes * a_.box_keys * 128 * kPanels));
    __syncwarp();
    for (int first = 0; first < boxes * kPanels; first += 32) {
      const int copy = first + lane_, box = copy / kPanels, panel = kFirst + copy % kPanels;
      const int page0 = __shfl_sync(~0u, at[0].page, box % 32),
                page1 = __shfl_sync(~0u, at[1].page, box % 32);
      const int slot0 = __shfl_sync(~0u, at[0].slot, box % 32),
                slot1 = __shfl_sync(~0u, at[1].slot, box % 32);
      if (copy < boxes * kPanels)
        tma_load_3d(to + static_cast<uint32_t>(panel * kPanelBytes + box * a_.box_keys * 128), &a_.keys, full,
                    panel * 64, box < 32 ? slot0 : slot1, box < 32 ? page0 : page1);
    }
    __syncwarp();
  }

  /// Rows that do not exist keep stale data; their results are not stored.
  __device__ void load_query(const WorkItem& item) {
    mbarrier_wait(shared_.query_empty(), query_phase_ ^ 1);
    query_phase_ ^= 1;
    const int group = static_cast<int>(a_.p.group.divisor);
    const int rows = min(item.n_q * group - item.row_first, Sm90Policy::kRows);
    constexpr int kChunks = kD / 8;
    for (int row = warp_ - 1; row < rows; row += static_cast<int>(Sm90Shared::kQueryWarps)) {
      const int token = a_.p.group.quotient(item.row_first + row);
      const Query* const from =
          static_cast<const Query*>(a_.p.q) +
          a_.p.q_rows.offset(item.q_first + token, item.row_first + row - token * group);
      const uint32_t to = shared_.query() + static_cast<uint32_t>(row * 128 + (lane_ ^ row) % 8 * 16);
#pragma unroll
      for (int chunk = lane_; chunk < kChunks; chunk += 32)
        cp_async_16(to + static_cast<uint32_t>(chunk / 8 * kPanelBytes), from + chunk * 8);
    }
    cp_async_wait_all();
    fence_proxy_async();
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(shared_.query_full());
    __syncwarp();
  }

  const Sm90Params& a_;
  const Sm90Shared shared_;
  const int warp_, lane_;
  RingPosition<Sm90Policy::kStages> keys_;
  uint32_t query_phase_ = 0;
};

}  // namespace fovea::cuda::mla
