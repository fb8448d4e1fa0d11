#pragma once
// 8-bit rows of a prefill CTA: copies to the staging ring, and their widening to wgmma's tiles.
#include "kernels/cuda/common/widen.cuh"
#include "kernels/cuda/sm90/prefill_policy.h"
#include "kernels/cuda/tiles/cp_async.cuh"

namespace fovea::cuda::sm90 {

/// Four fp8 elements -> two registers of bf16, exact, for bytes that are no NaN and no infinity.
template <KvType Type>
FOVEA_DEVICE void widen_finite(uint32_t (&r)[2], uint32_t bytes) {
  // Each byte with its sign in eight more bits, moved to bf16's place: the value times 2^(7 - 127), and for
  // e5m2 2^(15 - 127).
  constexpr bool kE4m3 = Type == KvType::e4m3;
  constexpr uint32_t kShift = kE4m3 ? 4 : 5, kMask = kE4m3 ? 0x87f087f0u : 0x8fe08fe0u,
                     kFactor = kE4m3 ? 0x7b807b80u : 0x77807780u;
  uint32_t low, high;
  asm("prmt.b32 %0, %1, 0, 0x9180;" : "=r"(low) : "r"(bytes));
  asm("prmt.b32 %0, %1, 0, 0xb3a2;" : "=r"(high) : "r"(bytes));
  r[0] = mul_bf16x2((low << kShift) & kMask, kFactor);
  r[1] = mul_bf16x2((high << kShift) & kMask, kFactor);
}

/// Sets bit 7 of a byte of `any` for each byte that widen_finite() does not serve: the addition carries into
/// it where a magnitude is e4m3's NaN, or e5m2's infinity or NaN.
template <KvType Type>
FOVEA_DEVICE void find_special(uint32_t& any, const uint32_t (&bytes)[4]) {
  constexpr uint32_t kMask = Type == KvType::e4m3 ? 0x7f7f7f7fu : 0x7c7c7c7cu,
                     kOne = Type == KvType::e4m3 ? 0x01010101u : 0x04040404u;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    any |= (bytes[i] & kMask) + kOne;
}

/// Copies and widens the rows of a tile that this thread has: those i * kRowsAtOnce + row(), 16 bytes of
/// each. Four lanes have the 64 dims of a panel of one row and the next four lanes those of the next row, so
/// that the stores of widened rows use all banks.
template <class P>
struct PrefillWidener {
  using Q = typename P::Q;
  static constexpr int kPanels = P::kKPanels, kRows = P::kRowsOfThread;
  static_assert(kRows <= 4 * kPanels, "a lane must hold the location of each of its rows");

  /// Read again for each buffer, so that what follows from it is not kept in registers, of which the producer
  /// has few.
  FOVEA_DEVICE static int thread() {
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x % 128;
  }
  FOVEA_DEVICE static int panel(int thread) { return thread / 8 % kPanels; }
  /// The thread's first row of a tile.
  FOVEA_DEVICE static int row(int thread) {
    return thread / 32 * (8 / kPanels) + thread % 32 / 8 / kPanels * 2 + thread / 4 % 2;
  }
  /// The lanes that share rows hold the location of one each: `thread` that of its row held(thread), and lane
  /// holder(thread, i) that of row i.
  FOVEA_DEVICE static int held(int thread) { return thread % 4 + panel(thread) * 4; }
  FOVEA_DEVICE static uint32_t held_row(int thread) {
    return static_cast<uint32_t>(row(thread) + held(thread) * P::kRowsAtOnce);
  }
  FOVEA_DEVICE static int holder(int thread, int i) {
    return (thread % 32 & ~(3 | (kPanels - 1) << 3)) | i % 4 | i / 4 << 3;
  }

  /// The thread's 16 bytes of row 0 in a buffer of the staging ring.
  FOVEA_DEVICE static uint32_t staging(uint32_t base, uint32_t buffer, int thread) {
    return base + P::kStagingOffset + buffer * P::kStagingBytes + static_cast<uint32_t>(thread) * 16;
  }

  /// Where the first scale of the row is, whose location the thread holds.
  FOVEA_DEVICE static uint32_t staged_scales(uint32_t base, uint32_t buffer, int thread) {
    return base + P::kStagingOffset + buffer * P::kStagingBytes + P::kStagingScales + held_row(thread) * 4;
  }

  /// Copies this thread's part of the rows. `offset`: bytes from `from`, that of the head, to the row whose
  /// location this lane holds; negative: the row is not read, and becomes zeros.
  FOVEA_DEVICE static void copy(uint32_t base, uint32_t buffer, const char* from, int64_t offset) {
    const int own = thread();
    const uint32_t to = staging(base, buffer, own);
    from += panel(own) * kPanelDims + own % 4 * 16;
    const auto low = static_cast<uint32_t>(offset), high = static_cast<uint32_t>(offset >> 32);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const auto of_row = static_cast<int64_t>(uint64_t{__shfl_sync(~0u, high, holder(own, i))} << 32 |
                                               __shfl_sync(~0u, low, holder(own, i)));
      cp_async_16(to + static_cast<uint32_t>(i * P::kStagingRowBytes), of_row < 0 ? from : from + of_row,
                  of_row >= 0);
    }
  }

  /// Copies two floats of the row whose location this lane holds, element `at` of `k` and `v`; negative:
  /// zeros.
  FOVEA_DEVICE static void copy_scales(uint32_t base, uint32_t buffer, const float* k, const float* v,
                                       int64_t at) {
    const int own = thread();
    if (held(own) >= kRows) return;
    const uint32_t to = staged_scales(base, buffer, own);
    cp_async_4(to, at < 0 ? k : k + at, at >= 0);
    cp_async_4(to + P::kTileKeys * 4, at < 0 ? v : v + at, at >= 0);
  }
  FOVEA_DEVICE static void store_scales(uint32_t to, uint32_t base, uint32_t buffer) {
    const int own = thread();
    if (held(own) >= kRows) return;
    const uint32_t from = staged_scales(base, buffer, own);
    to += held_row(own) * 4;
    asm volatile(
        "{\n.reg .b32 k, v;\nld.shared.b32 k, [%0];\nld.shared.b32 v, [%1];\nst.shared.b32 [%2], k;\n"
        "st.shared.b32 [%3], v;\n}" ::"r"(from),
        "r"(from + P::kTileKeys * 4), "r"(to), "r"(to + P::kTileKeys * 4)
        : "memory");
  }

  /// Widens them into a tile.
  FOVEA_DEVICE static void widen_rows(KvType type, uint32_t tile, uint32_t base, uint32_t buffer) {
    if constexpr (P::kKvType == KvType::int8)
      widen_rows<KvType::int8>(tile, base, buffer);
    else if (type == KvType::e4m3)
      widen_rows<KvType::e4m3>(tile, base, buffer);
    else
      widen_rows<KvType::e5m2>(tile, base, buffer);
  }

 private:
  template <KvType Type>
  FOVEA_DEVICE static void widen_rows(uint32_t tile, uint32_t base, uint32_t buffer) {
    static_assert(P::kRowsAtOnce % 8 == 0, "all rows of a thread have the same swizzle");
    const int own = thread();
    const auto first = static_cast<uint32_t>(row(own));
    const uint32_t from = staging(base, buffer, own);
    const uint32_t to = tile + static_cast<uint32_t>(panel(own) * P::kTilePanelBytes) + first * 128 +
                        ((static_cast<uint32_t>(own) % 4 * 2) ^ first % 8) * 16;
    // The next rows are loaded before a row is stored: a warp has nobody else to hide the latency.
    uint32_t bytes[3][4], special = 0;
    if constexpr (std::is_same_v<Q, __nv_bfloat16> && Type != KvType::int8) {
      constexpr int kInFlight = 3;
#pragma unroll
      for (int i = 0; i < kInFlight; ++i)
        load(bytes[i], from, i);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        find_special<Type>(special, bytes[i % kInFlight]);
        store<&widen_finite<Type>>(to, i, bytes[i % kInFlight]);
        if (i + kInFlight < kRows) load(bytes[i % kInFlight], from, i + kInFlight);
      }
    } else {
      // The other conversions leave too few registers for that.
      load(bytes[0], from, 0);
#pragma unroll 1
      for (int i = 0; i < kRows; ++i) {
        if (i + 1 < kRows) load(bytes[1], from, i + 1);
        store<&widen<Type, Q>>(to, i, bytes[0]);
#pragma unroll
        for (int k = 0; k < 4; ++k)
          bytes[0][k] = bytes[1][k];
      }
      return;
    }
    if ((special & 0x80808080u) == 0) [[likely]]
      return;
#pragma unroll 1
    for (int i = 0; i < kRows; ++i) {
      load(bytes[0], from, i);
      store<&widen<Type, Q>>(to, i, bytes[0]);
    }
  }
  FOVEA_DEVICE static void load(uint32_t (&bytes)[4], uint32_t from, int i) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bytes[0]), "=r"(bytes[1]), "=r"(bytes[2]), "=r"(bytes[3])
                 : "r"(from + static_cast<uint32_t>(i * P::kStagingRowBytes))
                 : "memory");
  }
  /// Two chunks of row i, from the 16 bytes of them; kWiden: four bytes to two registers.
  template <void (*kWiden)(uint32_t (&)[2], uint32_t)>
  FOVEA_DEVICE static void store(uint32_t to, int i, const uint32_t (&bytes)[4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t low[2], high[2];
      kWiden(low, bytes[2 * half]);
      kWiden(high, bytes[2 * half + 1]);
      asm volatile(
          "st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"((to ^ (static_cast<uint32_t>(half) * 16u)) +
                                                           static_cast<uint32_t>(i * P::kRowsAtOnce * 128)),
          "r"(low[0]), "r"(low[1]), "r"(high[0]), "r"(high[1])
          : "memory");
    }
  }
};

}  // namespace fovea::cuda::sm90
