#include "engine/encoder_arrays.h"

#include "base/check.h"
#include "fovea/result.h"

namespace fovea {
namespace {

int64_t padded(int64_t count) {
  constexpr auto kElements = static_cast<int64_t>(Device::kAlignment / sizeof(int32_t));
  return (count + kElements - 1) / kElements * kElements;
}

}  // namespace

int64_t EncoderArrays::bytes(int max_seqs, int max_rows) {
  const int64_t elements = padded(int64_t{max_seqs} + 1) + padded(max_seqs) + max_rows;
  return elements * static_cast<int64_t>(sizeof(int32_t));
}

EncoderArrays::EncoderArrays(Device& device, int max_seqs, int max_rows)
    : device_(device),
      max_seqs_(max_seqs),
      max_rows_(max_rows),
      memory_(device, static_cast<size_t>(bytes(max_seqs, max_rows))) {}

Result<BatchMeta> EncoderArrays::upload(const BatchMeta& meta, Stream& stream) {
  FOVEA_CHECK(meta.num_seqs() <= max_seqs_ && meta.num_tokens() <= max_rows_);
  auto* next = reinterpret_cast<int32_t*>(memory_.data());
  const auto copied = [&](std::span<const int32_t> values, int64_t room) -> Result<std::span<const int32_t>> {
    int32_t* const there = next;
    next += padded(room);
    FOVEA_RETURN_IF_ERROR(device_.copy_from_host(there, values.data(), values.size_bytes(), stream));
    return std::span<const int32_t>(there, values.size());
  };
  BatchMeta there = meta;
  there.tokens = meta.num_tokens();
  FOVEA_TRY(offsets, copied(meta.q_offsets, int64_t{max_seqs_} + 1));
  there.q_offsets = there.kv_indptr = offsets;
  FOVEA_TRY(lengths, copied(meta.kv_lens, max_seqs_));
  there.kv_lens = lengths;
  FOVEA_TRY(rows, copied(meta.kv_indices, max_rows_));
  there.kv_indices = rows;
  return there;
}

}  // namespace fovea
