#pragma once
// Absorbed MLA for sm_80 and later: a work item is 16 or 32 packed rows of a sequence against one split of
// its records. Any page size. A row's bits do not depend on the number of row groups in a CTA.
#include <type_traits>

#include "kernels/cuda/common/finish.cuh"
#include "kernels/cuda/mla/policy.h"
#include "kernels/cuda/sm90/row_keys.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/grid_dependency.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mma.cuh"

namespace fovea::cuda::mla {

/// Zeros what the products read beyond the records; once, before a barrier.
template <class P>
FOVEA_DEVICE void clear_padding(uint32_t shared) {
  constexpr int kWords = (P::kPaddedD - P::kD) / 8;  // of 16 bytes
  if constexpr (kWords > 0)
    for (int i = static_cast<int>(threadIdx.x); i < P::kTiles * P::kTileKeys * kWords;
         i += static_cast<int>(blockDim.x))
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(
                       shared + static_cast<uint32_t>(P::kRawBytes + i / kWords * P::kPitch + P::kD * 2 +
                                                      i % kWords * 16)),
                   "r"(0)
                   : "memory");
}

/// Loads tiles of records to shared memory: tile number n to slot n % 2. Four lanes copy a record.
template <class P>
class Sm80Loader {
 public:
  __device__ Sm80Loader(const AttentionParams& p, const WorkItem& item, uint32_t shared)
      : p_(p), item_(item), shared_(shared), next_(record(item.key_first + key())) {}

  /// Requests the tile that begins at key0, the one after the last; beyond the item's keys it is zeros. The
  /// address of the next one's record is looked up here, so that this one's has been for long.
  FOVEA_DEVICE void request(int key0, int slot) {
    constexpr int kPitch = P::kEightBit ? P::kRecordBytes : P::kPitch;
    const char* const from = next_;
    next_ = record(key0 + P::kTileKeys + key());
    if (key() < P::kTileKeys) {
      const bool valid = key0 + key() < item_.key_last;
      const int at = static_cast<int>(threadIdx.x) % 4 * 16;
      const uint32_t to = shared_ + static_cast<uint32_t>((slot * P::kTileKeys + key()) * kPitch + at);
#pragma unroll
      for (int i = 0; i < (kRecordChunks + 3) / 4; ++i)
        if (kRecordChunks % 4 == 0 || at + i * 64 < kRecordChunks * 16)
          cp_async_16(to + static_cast<uint32_t>(i * 64), from + at + i * 64, valid);
    }
    cp_async_commit();
  }

  /// Address of the tile in `slot` for the products, after which a barrier is needed if the keys have 8 bits:
  /// they are widened here.
  FOVEA_DEVICE uint32_t open(int slot) const {
    if constexpr (!P::kEightBit) return shared_ + static_cast<uint32_t>(slot * P::kTileBytes);
    if constexpr (P::kDsMla) return open_ds_mla(slot);
    const uint32_t wide = shared_ + P::kRawBytes;
    for (int chunk = static_cast<int>(threadIdx.x); chunk < kChunks; chunk += static_cast<int>(blockDim.x)) {
      uint32_t words[4];
      load_chunk(words, shared_ + static_cast<uint32_t>(slot * P::kTileKeys * P::kD + chunk * 16));
      const uint32_t to =
          wide + static_cast<uint32_t>(chunk / kRecordChunks * P::kPitch + chunk % kRecordChunks * 32);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t a[2], b[2];
        e4m3x4_to<typename P::Q>(a, words[2 * half]);
        e4m3x4_to<typename P::Q>(b, words[2 * half + 1]);
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + half * 16), "r"(a[0]), "r"(a[1]),
                     "r"(b[0]), "r"(b[1])
                     : "memory");
      }
    }
    return wide;
  }

 private:
  static constexpr int kRecordChunks = P::kRecordBytes / 16;  ///< of 16 bytes
  static constexpr int kChunks = P::kTileKeys * kRecordChunks;
  static_assert(P::threads(1) == 4 * P::kTileKeys);

  static FOVEA_DEVICE void load_chunk(uint32_t (&words)[4], uint32_t from) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
  }
  static FOVEA_DEVICE void store_chunk(uint32_t to, const uint32_t (&words)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
  }

  /// open() of records of fp8_ds_mla: code * scale in fp32, rounded once. Tasks of a record: 16 codes each,
  /// then 8 elements of the other part.
  FOVEA_DEVICE uint32_t open_ds_mla(int slot) const {
    static_assert(!P::kDsMla || std::is_same_v<typename P::Q, __nv_bfloat16>);
    constexpr int kCodes = P::kDv / 16, kTasks = kCodes + (P::kD - P::kDv) / 8;
    const uint32_t raw = shared_ + static_cast<uint32_t>(slot * P::kTileKeys * P::kRecordBytes);
    const uint32_t wide = shared_ + P::kRawBytes;
    for (int i = static_cast<int>(threadIdx.x); i < P::kTileKeys * kTasks;
         i += static_cast<int>(blockDim.x)) {
      const int key = i / kTasks, task = i % kTasks;
      const uint32_t from = raw + static_cast<uint32_t>(key * P::kRecordBytes);
      const uint32_t to = wide + static_cast<uint32_t>(key * P::kPitch);
      uint32_t words[4];
      if (task >= kCodes) {
        const int at = (task - kCodes) * 16;
        load_chunk(words, from + static_cast<uint32_t>(kDsMlaRope + at));
        store_chunk(to + static_cast<uint32_t>(P::kDv * 2 + at), words);
        continue;
      }
      load_chunk(words, from + static_cast<uint32_t>(task * 16));
      float scale;
      asm volatile("ld.shared.f32 %0, [%1];"
                   : "=f"(scale)
                   : "r"(from + static_cast<uint32_t>(P::kDv + task * 16 / kDsMlaScaled * 4))
                   : "memory");
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t out[4];
#pragma unroll
        for (int w = 0; w < 2; ++w) {
          uint32_t pairs[2];
          e4m3x4_to<__half>(pairs, words[2 * half + w]);
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float2 x = unpack<__half>(pairs[e]);
            out[2 * w + e] = pack<typename P::Q>(x.x * scale, x.y * scale);
          }
        }
        store_chunk(to + static_cast<uint32_t>(task * 32 + half * 16), out);
      }
    }
    return wide;
  }

  /// The key of a tile whose record this lane copies; beyond the tile: none.
  static FOVEA_DEVICE int key() { return static_cast<int>(threadIdx.x) / 4; }
  /// Some address of the cache where `key` is not one of the item.
  FOVEA_DEVICE const char* record(int key) const {
    if (key >= item_.key_last) return p_.kv.k;
    if (p_.kv.pages == nullptr) return p_.kv.k + (item_.pages + key) * p_.kv.k_page_stride;
    const int page = p_.kv.page_size.quotient(key);
    const int slot = key - page * static_cast<int>(p_.kv.page_size.divisor);
    return p_.kv.k + __ldg(p_.kv.pages + item_.pages + page) * p_.kv.k_page_stride +
           slot * p_.kv.k_slot_stride;
  }

  const AttentionParams& p_;
  const WorkItem& item_;
  const uint32_t shared_;
  const char* next_;
};

/// A warp's part of a work item. Lane (g, q) has rows g and g + 8 of its group.
template <class P>
class Sm80Tile {
 public:
  __device__ Sm80Tile(const AttentionParams& p, const WorkItem& item, char* scores)
      : p_(p),
        item_(item),
        quarter_(static_cast<int>(threadIdx.x) / 32 % P::kGroupWarps),
        scores_(reinterpret_cast<float4*>(scores + static_cast<int>(threadIdx.x) / 128 * P::kScoreBytes)),
        row_first_(item.row_first + static_cast<int>(threadIdx.x) / 128 * P::kGroupRows) {
    load_query();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int packed = row_first_ + lane_id() / 4 + 8 * h;
      const int token = min(p.group.quotient(packed), item.n_q - 1);
      keys_[h] = sm90::seen_keys(p.mask, item, token + item.n_k - item.n_q);
      top_[h] = -INFINITY, sum_[h] = 0;
    }
#pragma unroll
    for (int i = 0; i < kColumnTiles; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        o_[i][e] = 0;
  }

  /// Writes the scores of this warp's dims to shared memory.
  FOVEA_DEVICE void score(uint32_t tile) {
    float s[kKeyTiles][4];
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    // Matrices: keys 0 to 7, then 8 to 15, each with the two chunks of a k step.
    const uint32_t from = tile + (lane / 16 * 8 + lane % 8) * P::kPitch +
                          static_cast<uint32_t>(quarter_ * P::kSteps * 32) + lane / 8 % 2 * 16;
#pragma unroll
    for (int k = 0; k < P::kSteps; ++k)
#pragma unroll
      for (int pair = 0; pair < kKeyTiles / 2; ++pair) {
        uint32_t b[4];
        ldmatrix_x4(b, from + static_cast<uint32_t>(pair * 16 * P::kPitch + k * 32));
        if (k == 0) {
          Mma<typename P::Q>::k16_first(s[2 * pair], q_[k], b[0], b[1]);
          Mma<typename P::Q>::k16_first(s[2 * pair + 1], q_[k], b[2], b[3]);
        } else {
          Mma<typename P::Q>::k16(s[2 * pair], q_[k], b[0], b[1]);
          Mma<typename P::Q>::k16(s[2 * pair + 1], q_[k], b[2], b[3]);
        }
      }
#pragma unroll
    for (int t = 0; t < kKeyTiles; ++t)
      scores_[(quarter_ * kKeyTiles + t) * 32 + lane_id()] = make_float4(s[t][0], s[t][1], s[t][2], s[t][3]);
  }

  /// Softmax of the tile's scores, which all four warps compute alike, and this warp's columns of P V.
  FOVEA_DEVICE void add_values(int key0, uint32_t tile) {
    float s[kKeyTiles][4];
#pragma unroll
    for (int t = 0; t < kKeyTiles; ++t) {
      float4 sum = scores_[t * 32 + lane_id()];
#pragma unroll
      for (int w = 1; w < P::kGroupWarps; ++w) {
        const float4 x = scores_[(w * kKeyTiles + t) * 32 + lane_id()];
        sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
      }
      s[t][0] = sum.x, s[t][1] = sum.y, s[t][2] = sum.z, s[t][3] = sum.w;
    }
    const float scale = p_.scale * kLog2e;
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = top_[h];
#pragma unroll
      for (int t = 0; t < kKeyTiles; ++t)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int key = key0 + t * 8 + lane_id() % 4 * 2 + e;
          float& x = s[t][2 * h + e];
          x = key < keys_[h].first || key >= keys_[h].last ? -INFINITY : x * scale;
          largest = fmaxf(largest, x);
        }
      largest = quad_max(largest);
      const float base = finite_max(largest);
      factor[h] = exp2_approx(top_[h] - base);
      top_[h] = largest;
      sum_[h] *= factor[h];
#pragma unroll
      for (int t = 0; t < kKeyTiles; ++t)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[t][2 * h + e];
          x = exp2_approx(x - base);
          sum_[h] += x;
        }
    }
    if (__any_sync(~0u, factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
      for (int i = 0; i < kColumnTiles; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          o_[i][e] *= factor[e / 2];
    }
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    // Matrices: keys 0 to 7, then 8 to 15 of 8 columns; then those of the next 8 columns.
    const uint32_t from =
        tile + lane % 16 * P::kPitch + static_cast<uint32_t>(quarter_ * kColumnTiles * 16) + lane / 16 * 16;
#pragma unroll
    for (int k = 0; k < P::kTileKeys / 16; ++k) {
      uint32_t a[4];
#pragma unroll
      for (int r = 0; r < 4; ++r)
        a[r] = pack<typename P::Q>(s[2 * k + r / 2][r % 2 * 2], s[2 * k + r / 2][r % 2 * 2 + 1]);
#pragma unroll
      for (int i = 0; i < kColumnTiles; i += 2) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, from + static_cast<uint32_t>(k * 16 * P::kPitch + i * 16));
        Mma<typename P::Q>::k16(o_[i], a, b[0], b[1]);
        Mma<typename P::Q>::k16(o_[i + 1], a, b[2], b[3]);
      }
    }
  }

  FOVEA_DEVICE void finish_rows() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = quad_sum(sum_[h]);
      const RowContext r = row_context(p_, item_, row_first_ + lane_id() / 4 + 8 * h, 0);
      if (r.row >= item_.n_q) continue;
      const bool writes = quarter_ == 0 && lane_id() % 4 == 0;  // the state or the LSE
      const int column = quarter_ * kColumnTiles * 8 + lane_id() % 4 * 2;
      if (item_.num_splits > 1) {
        const int64_t at = partial_row(p_, item_.partial_first + item_.split, 0,
                                       row_first_ - item_.row_first + lane_id() / 4 + 8 * h);
        if (writes) store_state(p_, at, top_[h], sum);
        float* to = p_.partial_out + at * P::kDv + column;
#pragma unroll
        for (int i = 0; i < kColumnTiles; ++i)
          __stcg(reinterpret_cast<float2*>(to + i * 8), make_float2(o_[i][2 * h], o_[i][2 * h + 1]));
        continue;
      }
      const RowEnd end = finish_row(top_[h], sum_of(item_, sum), nullptr, false);
      const float f = end.inverse * p_.kv.v_scale;
      typename P::Q* to =
          static_cast<typename P::Q*>(p_.out) + p_.out_rows.offset(item_.q_first + r.row, r.head) + column;
#pragma unroll
      for (int i = 0; i < kColumnTiles; ++i)
        *reinterpret_cast<uint32_t*>(to + i * 8) =
            pack<typename P::Q>(o_[i][2 * h] * f, o_[i][2 * h + 1] * f);
      if (writes && p_.lse != nullptr)
        p_.lse[static_cast<int64_t>(item_.q_first + r.row) * p_.group.divisor + r.head] = end.lse;
    }
  }

 private:
  static constexpr int kKeyTiles = P::kTileKeys / 8;                ///< of an mma
  static constexpr int kColumnTiles = P::kDv / 8 / P::kGroupWarps;  ///< of a warp's columns of V

  FOVEA_DEVICE void load_query() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const RowContext r = row_context(p_, item_, row_first_ + lane_id() / 4 + 8 * h, 0);
      const bool valid = r.row < item_.n_q;
      const typename P::Q* from = static_cast<const typename P::Q*>(p_.q) +
                                  (valid ? p_.q_rows.offset(item_.q_first + r.row, r.head) : 0) +
                                  quarter_ * P::kSteps * 16 + lane_id() % 4 * 2;
#pragma unroll
      for (int k = 0; k < P::kSteps; ++k)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          // Beyond the row's elements there need not be numbers.
          q_[k][half * 2 + h] = valid && (P::kPaddedD == P::kD || quarter_ * P::kSteps + k < P::kD / 16)
                                    ? __ldg(reinterpret_cast<const uint32_t*>(from + k * 16 + half * 8))
                                    : 0u;
    }
  }

  const AttentionParams& p_;
  const WorkItem& item_;
  const int quarter_;
  float4* const scores_;  ///< [quarter][key tile][lane] of this group
  const int row_first_;
  sm90::KeyInterval keys_[2];
  float top_[2], sum_[2];  ///< sum_: of this lane's keys
  uint32_t q_[P::kSteps][4];
  float o_[kColumnTiles][4];
};

template <class P>
__global__ __launch_bounds__(P::threads(P::kMostGroups),
                             1) void sm80_kernel(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(128) char shared[];
  grid_launch_dependents();
  grid_dependency_wait();
  clear_padding<P>(shared_address(shared));
  const int num_items = *p.num_items;
  for (int index = static_cast<int>(blockIdx.x); index < num_items; index += static_cast<int>(gridDim.x)) {
    const WorkItem item = p.items[index];
    Sm80Loader<P> loader(p, item, shared_address(shared));
    __syncthreads();  // the values and scores of the item before have been read
    if (item.key_first < item.key_last) loader.request(item.key_first, 0);
    Sm80Tile<P> rows(p, item, shared + P::kRawBytes + P::kTiles * P::kTileBytes);
    int slot = 0;
    for (int key0 = item.key_first; key0 < item.key_last; key0 += P::kTileKeys, slot ^= 1) {
      cp_async_wait<0>();
      __syncthreads();
      if (key0 + P::kTileKeys < item.key_last) loader.request(key0 + P::kTileKeys, slot ^ 1);
      const uint32_t tile = loader.open(slot);
      if (P::kEightBit) __syncthreads();
      rows.score(tile);
      __syncthreads();
      rows.add_values(key0, tile);
    }
    rows.finish_rows();
  }
}

}  // namespace fovea::cuda::mla
