#pragma once
// fp8_ds_mla, DeepSeek-V3.2's record of a token in bytes (rank 512, rope 64: 656 bytes):
//   [0, rank)                  the latent as e4m3 codes
//   [rank, rank + rank / 32)   fp32 scales, one for each 128 elements of the latent
//   the rest                   the part with RoPE, bf16
// Records of a page follow each other; the strides of a view count bytes.
#include <cstddef>
#include <cstdint>
#include <span>

#include "fovea/attention_step.h"

namespace fovea {

class ThreadPool;

inline constexpr int kDsMlaGroup = 128;  ///< elements of a scale

/// Whether a latent of `rank` elements and a part with RoPE of `rope` make a record.
constexpr bool is_ds_mla(int rank, int rope) {
  return rank > 0 && rank % kDsMlaGroup == 0 && rope >= 0 && rope % 2 == 0;
}

constexpr int64_t ds_mla_scales(int rank) {
  return rank;
}
constexpr int64_t ds_mla_rope(int rank) {
  return rank + rank / kDsMlaGroup * int64_t{4};
}
constexpr int64_t ds_mla_bytes(int rank, int rope) {
  return ds_mla_rope(rank) + int64_t{2} * rope;
}

/// Bytes of a record of MLA in a cache of `dtype`, without scales that lie elsewhere.
constexpr int64_t record_bytes(KvCacheDType dtype, int record_dim, int rank) {
  if (dtype == KvCacheDType::fp8_ds_mla) return ds_mla_bytes(rank, record_dim - rank);
  return record_dim * static_cast<int64_t>(size_of(dtype));
}

/// Writes x [rank + rope]. A scale is 2^ceil(log2(max(|x| / 448, 1e-4))) over its elements, which are rounded
/// to nearest even after division by it. NaN stays NaN; infinity becomes 448 times the scale.
void store_ds_mla(const float* x, int rank, int rope, std::byte* record);

/// Reads any scales, also those of other writers: code * scale, rounded once.
void load_ds_mla(const std::byte* record, int rank, int rope, float* x);

/// Writes rows [T, rank + rope], `stride` elements apart, into slots[T] of a view of records; slot = page *
/// page_size + offset, negative = padding, not written.
void write_ds_mla(const KvView& view, int rank, int rope, std::span<const int64_t> slots, const float* rows,
                  int64_t stride, ThreadPool& pool);

}  // namespace fovea
