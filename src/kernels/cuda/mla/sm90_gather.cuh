#pragma once
// The producer warpgroup of the Hopper kernel over lists of keys: all its threads copy queries and keys. A
// key is one slot of KvParams::pages, whatever its neighbours are.
#include "kernels/cuda/mla/sm90_shared.cuh"
#include "kernels/cuda/tiles/convert.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"

namespace fovea::cuda::mla {

inline constexpr uint32_t kGatherThreads = 128;

template <class Query, KeySource kSource>
class Sm90Gatherer {
 public:
  __device__ Sm90Gatherer(const Sm90Params& a, Sm90Shared shared)
      : a_(a), shared_(shared), thread_(static_cast<int>(threadIdx.x) % static_cast<int>(kGatherThreads)) {}

  __device__ void run() {
    const int num_items = *a_.p.num_items;
    for (int index = static_cast<int>(blockIdx.x); index < num_items; index += static_cast<int>(gridDim.x)) {
      const WorkItem& item = a_.p.items[index];
      if (item.key_first >= item.key_last) continue;
      const int32_t* const slots = a_.p.kv.pages + item.pages;
      const int last = item.key_last;
      find(slots, item.key_first, last);
      for (int key0 = item.key_first; key0 < last; key0 += kTile, keys_.next()) {
        int here[kRows];
#pragma unroll
        for (int i = 0; i < kRows; ++i)
          here[i] = next_[i];
        find(slots, key0 + kTile, last);
        const int keys = last - key0;
        load_part<Part::right>(here, keys);
        load_part<Part::left>(here, keys);
        if (key0 == item.key_first) load_query(item);
      }
    }
    cp_async_wait_all();
  }

 private:
  static constexpr int kTile = Sm90Policy::kTileKeys, kPanelBytes = Sm90Policy::kPanelBytes;
  /// Eight threads copy the 128 bytes of a panel's row. A thread has every 16th key of a tile.
  static constexpr int kRows = kTile / 16;
  FOVEA_DEVICE int chunk() const { return thread_ % 8; }
  FOVEA_DEVICE int row() const { return thread_ / 8; }
  /// The place of a chunk of the thread's first key; rows that are 16 further have the same swizzle.
  FOVEA_DEVICE uint32_t place(int chunk) const {
    return static_cast<uint32_t>(row() * 128 + (chunk ^ row() % 8) * 16);
  }

  FOVEA_DEVICE const char* record(int slot) const { return a_.p.kv.k + slot * a_.p.kv.k_page_stride; }

  /// Looks up this thread's keys of the tile that begins at key0; some slot where there is none.
  FOVEA_DEVICE void find(const int32_t* slots, int key0, int last) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int key = key0 + row() + 16 * i;
      next_[i] = key < last ? __ldg(slots + key) : 0;
      if (kSource == KeySource::ds_mla && key < last) prefetch(record(next_[i]));
    }
  }
  /// The lines of a record, each by one of its eight threads.
  FOVEA_DEVICE void prefetch(const char* record) const {
    if (chunk() < (kDsMlaBytes + 127) / 128) prefetch_l2(record + chunk() * 128);
  }

  /// Keys from `keys` on are not copied: the scorer clears their values and masks their scores.
  template <Part kPart>
  FOVEA_DEVICE void load_part(const int (&at)[kRows], int keys) {
    mbarrier_wait(shared_.empty(keys_.slot, kPart), keys_.phase ^ 1);
    const uint32_t to = shared_.keys(keys_.slot), full = shared_.full(keys_.slot, kPart);
    constexpr int kFirst = kPart == Part::right ? 4 : 0, kLast = kPart == Part::right ? 9 : 4;
    if constexpr (kSource == KeySource::records) {
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        if (row() + 16 * i < keys)
#pragma unroll
          for (int panel = kFirst; panel < kLast; ++panel)
            cp_async_16(to + static_cast<uint32_t>(panel * kPanelBytes + i * 2048) + place(chunk()),
                        record(at[i]) + panel * 128 + chunk() * 16);
      cp_async_mbarrier_arrive(full);
    } else {
      widen<kFirst>(at, keys, to);
      if constexpr (kPart == Part::right) {
        uint4 words[kRows];
#pragma unroll
        for (int i = 0; i < kRows; ++i)
          if (row() + 16 * i < keys)
            words[i] = __ldcg(reinterpret_cast<const uint4*>(record(at[i]) + kDsMlaRope + chunk() * 16));
#pragma unroll
        for (int i = 0; i < kRows; ++i)
          store(to + static_cast<uint32_t>(8 * kPanelBytes + i * 2048) + place(chunk()), words[i]);
      }
      mbarrier_arrive(full);
    }
  }

  static FOVEA_DEVICE void store(uint32_t to, const uint4& x) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
  }

  /// Four panels from kFirst on: 256 codes of a record, 16 of each of them and 16 further on for this thread;
  /// code * scale in fp32, rounded once.
  template <int kFirst>
  FOVEA_DEVICE void widen(const int (&at)[kRows], int keys, uint32_t to) const {
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      constexpr int kGroup = kDsMlaScaled;
      const int code = kFirst * 64 + half * kGroup + chunk() * 16;
      const uint32_t panel = to + static_cast<uint32_t>(code / 64 * kPanelBytes);
      const int first = code % 64 / 8;
      // The threads of a key hold the scales of all of its thread's keys, one each.
      const int own = chunk() % kRows;
      const int owned = own == 0 ? at[0] : own == 1 ? at[1] : own == 2 ? at[2] : at[3];
      const float scale =
          __ldcg(reinterpret_cast<const float*>(record(owned) + kDv) + (kFirst * 64 / kGroup + half));
      uint4 words[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        if (row() + 16 * i < keys) words[i] = __ldcg(reinterpret_cast<const uint4*>(record(at[i]) + code));
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float x = __shfl_sync(~0u, scale, i, 8);
        const uint32_t to_key = panel + static_cast<uint32_t>(i * 2048);
        store(to_key + place(first), widened(words[i].x, words[i].y, x));
        store(to_key + place(first + 1), widened(words[i].z, words[i].w, x));
      }
    }
  }
  static FOVEA_DEVICE uint4 widened(uint32_t low, uint32_t high, float scale) {
    uint32_t pairs[2][2];
    e4m3x4_to<__half>(pairs[0], low);
    e4m3x4_to<__half>(pairs[1], high);
    uint32_t out[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 x = unpack<__half>(pairs[e / 2][e % 2]);
      out[e] = pack<Query>(x.x * scale, x.y * scale);
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
  }

  /// Rows that do not exist keep stale data; their results are not stored.
  FOVEA_DEVICE void load_query(const WorkItem& item) {
    mbarrier_wait(shared_.query_empty(), query_phase_ ^ 1);
    query_phase_ ^= 1;
    const int heads = min(static_cast<int>(a_.p.group.divisor) - item.row_first, Sm90Policy::kRows);
    const Query* const from =
        static_cast<const Query*>(a_.p.q) + a_.p.q_rows.offset(item.q_first, item.row_first) + chunk() * 8;
#pragma unroll
    for (int i = 0; i < Sm90Policy::kRows / 16; ++i)
      if (row() + 16 * i < heads)
#pragma unroll
        for (int panel = 0; panel < Sm90Policy::kPanels; ++panel)
          cp_async_16(
              shared_.query() + static_cast<uint32_t>(panel * kPanelBytes + i * 2048) + place(chunk()),
              from + static_cast<int64_t>(row() + 16 * i) * a_.p.q_rows.head_stride + panel * 64);
    cp_async_mbarrier_arrive(shared_.query_full());
  }

  const Sm90Params& a_;
  const Sm90Shared shared_;
  const int thread_;
  int next_[kRows];
  RingPosition<Sm90Policy::kStages> keys_;
  uint32_t query_phase_ = 0;
};

}  // namespace fovea::cuda::mla
