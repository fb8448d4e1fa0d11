#pragma once
// The producer warpgroups of the Hopper kernel over lists of keys: all their threads copy queries and keys. A
// key is one slot of KvParams::pages, whatever its neighbours are.
#include "kernels/cuda/mla/sm90_shared.cuh"
#include "kernels/cuda/tiles/convert.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"

namespace fovea::cuda::mla {

inline constexpr uint32_t kGatherThreads = 128;

/// Eight codes of fp8_ds_mla times their scale in fp32, rounded once.
template <class Query>
FOVEA_DEVICE uint4 widened_codes(uint32_t low, uint32_t high, float scale) {
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

/// What gatherers share.
template <class Query>
class Sm90Gather {
 public:
  __device__ Sm90Gather(const Sm90Params& a, Sm90Shared shared)
      : a_(a), shared_(shared), thread_(static_cast<int>(threadIdx.x) % static_cast<int>(kGatherThreads)) {}

 protected:
  static constexpr int kTile = Sm90Policy::kTileKeys, kPanelBytes = Sm90Policy::kPanelBytes;
  /// Eight threads copy the 128 bytes of a panel's row. A thread has every 16th key of a tile.
  static constexpr int kRows = kTile / 16;
  FOVEA_DEVICE int chunk() const { return thread_ % 8; }
  FOVEA_DEVICE int row() const { return thread_ / 8; }
  /// The place of this thread's chunk of its first key; rows that are 16 further have the same swizzle.
  FOVEA_DEVICE uint32_t place() const {
    return static_cast<uint32_t>(row() * 128 + (chunk() ^ row() % 8) * 16);
  }

  FOVEA_DEVICE const char* record(int slot) const { return a_.p.kv.k + slot * a_.p.kv.k_page_stride; }

  /// Looks up this thread's keys of the tile that begins at key0; some slot where there is none.
  FOVEA_DEVICE void find(const int32_t* slots, int key0, int last, int (&at)[kRows]) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int key = key0 + row() + 16 * i;
      at[i] = key < last ? __ldg(slots + key) : 0;
    }
  }

  FOVEA_DEVICE void wait_empty(Part part) const {
    mbarrier_wait(shared_.empty(keys_.slot, part), keys_.phase ^ 1);
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
          cp_async_16(shared_.query() + static_cast<uint32_t>(panel * kPanelBytes + i * 2048) + place(),
                      from + static_cast<int64_t>(row() + 16 * i) * a_.p.q_rows.head_stride + panel * 64);
    cp_async_mbarrier_arrive(shared_.query_full());
  }

  const Sm90Params& a_;
  const Sm90Shared shared_;
  const int thread_;
  RingPosition<Sm90Policy::kStages> keys_;
  uint32_t query_phase_ = 0;
};

/// Copies records of 16 bits.
template <class Query>
class Sm90Copier : Sm90Gather<Query> {
  using Base = Sm90Gather<Query>;
  using Base::a_, Base::shared_, Base::keys_, Base::chunk, Base::row, Base::kRows, Base::kTile;

 public:
  using Base::Base;

  __device__ void run() {
    const int num_items = *a_.p.num_items;
    for (int index = static_cast<int>(blockIdx.x); index < num_items; index += static_cast<int>(gridDim.x)) {
      const WorkItem& item = a_.p.items[index];
      const int32_t* const slots = a_.p.kv.pages + item.pages;
      const int last = item.key_last;
      int next[kRows];
      if (item.key_first < last) this->find(slots, item.key_first, last, next);
      for (int key0 = item.key_first; key0 < last; key0 += kTile, keys_.next()) {
        int here[kRows];
#pragma unroll
        for (int i = 0; i < kRows; ++i)
          here[i] = next[i];
        this->find(slots, key0 + kTile, last, next);
        copy_part<Part::right>(here, last - key0);
        copy_part<Part::left>(here, last - key0);
        if (key0 == item.key_first) this->load_query(item);
      }
    }
    cp_async_wait_all();
  }

 private:
  /// Keys from `keys` on are not copied: the scorer clears their values and masks their scores.
  template <Part kPart>
  FOVEA_DEVICE void copy_part(const int (&at)[kRows], int keys) {
    this->wait_empty(kPart);
    const uint32_t to = shared_.keys(keys_.slot);
    constexpr int kFirst = kPart == Part::right ? 4 : 0, kLast = kPart == Part::right ? 9 : 4;
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (row() + 16 * i < keys)
#pragma unroll
        for (int panel = kFirst; panel < kLast; ++panel)
          cp_async_16(to + static_cast<uint32_t>(panel * Base::kPanelBytes + i * 2048) + this->place(),
                      this->record(at[i]) + panel * 128 + chunk() * 16);
    cp_async_mbarrier_arrive(shared_.full(keys_.slot, kPart));
  }
};

/// Widens records of fp8_ds_mla, through registers: the codes of half a tile are on their way at once. Where
/// there is no key, some record takes its place; the scorer clears its values and masks its scores.
template <class Query>
class Sm90Widener : Sm90Gather<Query> {
  using Base = Sm90Gather<Query>;
  using Base::a_, Base::shared_, Base::keys_, Base::chunk, Base::row, Base::kRows, Base::kTile;

 public:
  using Base::Base;

  __device__ void run() {
    const int num_items = *a_.p.num_items;
    for (int index = static_cast<int>(blockIdx.x); index < num_items; index += static_cast<int>(gridDim.x)) {
      const WorkItem& item = a_.p.items[index];
      if (item.key_first >= item.key_last) continue;
      const int32_t* const slots = a_.p.kv.pages + item.pages;
      const int last = item.key_last;
      int here[kRows], next[kRows];
      this->find(slots, item.key_first, last, here);
      this->find(slots, item.key_first + kTile, last, next);
      Codes a, b;
      load<2>(here, a);
      load<3>(here, b);
      for (int key0 = item.key_first; key0 < last; key0 += kTile, keys_.next()) {
        const uint32_t to = shared_.keys(keys_.slot) + this->place();
        this->wait_empty(Part::right);
#pragma unroll
        for (int i = 0; i < kRows; ++i)
          cp_async_16(to + static_cast<uint32_t>(8 * Base::kPanelBytes + i * 2048),
                      this->record(here[i]) + kDsMlaRope + chunk() * 16);
        widen<2>(a, to);
        load<0>(here, a);
        widen<3>(b, to);
        load<1>(here, b);
        cp_async_wait_all();
        mbarrier_arrive(shared_.full(keys_.slot, Part::right));
        prefetch(next);
        this->wait_empty(Part::left);
        widen<0>(a, to);
        load<2>(next, a);
        widen<1>(b, to);
        load<3>(next, b);
        mbarrier_arrive(shared_.full(keys_.slot, Part::left));
#pragma unroll
        for (int i = 0; i < kRows; ++i)
          here[i] = next[i];
        this->find(slots, key0 + 2 * kTile, last, next);
        if (key0 == item.key_first) this->load_query(item);
      }
    }
    cp_async_wait_all();
  }

 private:
  /// Of 128 codes with one scale, 8 of each of their two panels for each key of this thread; and the scale of
  /// one of these keys: the threads of a key hold those of all of its thread's keys.
  struct Codes {
    uint2 words[kRows][2];
    float scale;
  };
  /// Computes the addresses where it loads, as eight of them would take the registers of what is on its way.
  template <int kGroup>
  FOVEA_DEVICE void load(const int (&at)[kRows], Codes& codes) const {
    static_assert(kRows == 4);
    const int own = chunk() % kRows;
    const int owned = own == 0 ? at[0] : own == 1 ? at[1] : own == 2 ? at[2] : at[3];
    const int stride = static_cast<int>(a_.p.kv.k_page_stride);
    asm volatile("{\n.reg .u64 a;\nmad.wide.s32 a, %1, %2, %3;\nld.global.cg.f32 %0, [a + %4];\n}"
                 : "=f"(codes.scale)
                 : "r"(owned), "r"(stride), "l"(a_.p.kv.k), "n"(kDv + kGroup * 4)
                 : "memory");
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      uint2(&words)[2] = codes.words[i];
      asm volatile(
          "{\n.reg .u64 a;\nmad.wide.s32 a, %4, %5, %6;\nld.global.cg.v2.u32 {%0, %1}, [a + %7];\n"
          "ld.global.cg.v2.u32 {%2, %3}, [a + %8];\n}"
          : "=r"(words[0].x), "=r"(words[0].y), "=r"(words[1].x), "=r"(words[1].y)
          : "r"(at[i]), "r"(stride), "l"(a_.p.kv.k + chunk() * 8), "n"(kGroup * kDsMlaScaled),
            "n"(kGroup * kDsMlaScaled + 64)
          : "memory");
    }
  }
  template <int kGroup>
  FOVEA_DEVICE void widen(const Codes& codes, uint32_t to) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float scale = __shfl_sync(~0u, codes.scale, i, 8);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store(to + static_cast<uint32_t>((kGroup * 2 + half) * Base::kPanelBytes + i * 2048),
              widened_codes<Query>(codes.words[i][half].x, codes.words[i][half].y, scale));
    }
  }
  /// The lines of this thread's records into the L2, each by one of their eight threads.
  FOVEA_DEVICE void prefetch(const int (&at)[kRows]) const {
    if (chunk() * 128 >= kDsMlaBytes) return;
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      prefetch_l2(this->record(at[i]) + chunk() * 128);
  }

  static FOVEA_DEVICE void store(uint32_t to, const uint4& x) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
  }
};

}  // namespace fovea::cuda::mla
