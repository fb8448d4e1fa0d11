#include "engine/step_arrays.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"

namespace fovea {
namespace {

size_t padded(size_t bytes) {
  return (bytes + Device::kAlignment - 1) / Device::kAlignment * Device::kAlignment;
}

constexpr size_t kMaxRowArrays = 8;

std::span<const int32_t> elements(const Tensor& t) {
  return {t.as<const int32_t>(), static_cast<size_t>(t.elements())};
}

}  // namespace

int64_t StepArrays::block_bytes(const Limits& limits) {
  const auto seqs = static_cast<size_t>(limits.max_seqs);
  const auto rows = std::max(static_cast<size_t>(limits.max_tokens), limits.small_rows());
  const auto logit_rows = std::max(static_cast<size_t>(limits.max_logit_rows), limits.small_rows());
  constexpr size_t kInt = sizeof(int32_t), kLong = sizeof(int64_t);
  const int64_t pages = limits.max_pages + limits.max_cross_pages;
  const size_t cross = limits.max_cross_pages > 0 ? padded(seqs * kInt) + padded((seqs + 1) * kInt) : 0;
  return static_cast<int64_t>(2 * padded(rows * kInt) + padded(rows * kLong) + padded(logit_rows * kInt) +
                              rows * limits.row_bytes + logit_rows * limits.logit_row_bytes +
                              kMaxRowArrays * Device::kAlignment + 3 * padded((seqs + 1) * kInt) +
                              padded(seqs * kInt) + cross +
                              padded(dense_bytes(ElementType::i32, {limits.max_seqs, pages})));
}

StepArrays::StepArrays(Device& device, const Limits& limits)
    : limits_(limits), device_(device), block_bytes_(static_cast<size_t>(block_bytes(limits))) {
  memory_ = Buffer(device, block_bytes_);
  for (int i = 0; i < limits.host_blocks; ++i)
    blocks_.emplace_back(device, block_bytes_);
}

/// Sets `there` to the next `count` elements on the device, of room for `capacity`; returns their place in
/// the host's block.
std::byte* StepArrays::reserve(ElementType type, size_t count, size_t capacity, Tensor& there) {
  FOVEA_CHECK(count <= capacity && offset_ + capacity * size_of(type) <= block_bytes_);
  std::byte* const host = blocks_[block_].data() + offset_;
  there = memory_.tensor(type, {static_cast<int64_t>(count)}, offset_);
  offset_ += padded(capacity * size_of(type));
  return host;
}

/// Places `values`, followed by room up to `count` elements. Returns all of them.
template <class T>
std::span<T> StepArrays::put(std::span<const T> values, size_t count, size_t capacity, Tensor& there) {
  FOVEA_CHECK(values.size() <= count);
  T* const host = reinterpret_cast<T*>(reserve(element_type<T>(), count, capacity, there));
  std::ranges::copy(values, host);
  return {host, count};
}

/// Places the pages of `seqs` sequences, of `host` and then page 0 for each that fills up the step, from
/// `page` on, and their places after `begin` in `first`. Returns the end of the pages.
int32_t* StepArrays::put_pages(const BatchMeta& host, size_t seqs, std::span<int32_t> first,
                               const int32_t* begin, int32_t* page) const {
  const size_t given = host.kv_lens.size();
  for (size_t b = 0; b < seqs; ++b) {
    first[b] = static_cast<int32_t>(page - begin);
    if (b < given)
      page = std::copy_n(host.pages(static_cast<int>(b)),
                         (host.kv_lens[b] + limits_.page_size - 1) / limits_.page_size, page);
    else
      *page++ = 0;
  }
  first[seqs] = static_cast<int32_t>(page - begin);
  return page;
}

Status StepArrays::upload(const BatchBuilder& batch, Stream& stream, const More& more) {
  block_ = (block_ + 1) % blocks_.size();
  offset_ = 0;
  const ForwardInput input = batch.input();
  const BatchMeta& host = batch.meta();
  const size_t given = input.token_ids.size(), given_seqs = host.kv_lens.size();
  const size_t rows = std::max(given, static_cast<size_t>(more.rows)), added = rows - given;
  const size_t most_seqs = static_cast<size_t>(limits_.max_seqs), small = limits_.small_rows();
  const size_t seqs = more.rows > 0 ? std::min(rows, most_seqs) : given_seqs;
  FOVEA_CHECK(more.rows == 0 || (input.logit_rows.size() == given && given_seqs + (added > 0) <= seqs));
  // Small steps have small arrays: one copy covers them, and a graph of one bucket finds those of another.
  const size_t most_rows = rows <= small ? small : static_cast<size_t>(limits_.max_tokens);
  const size_t most_logits = rows <= small ? small : static_cast<size_t>(limits_.max_logit_rows);

  std::ranges::fill(put(input.token_ids, rows, most_rows, tensors_.token_ids).last(added), 0);
  std::ranges::fill(put(input.positions, rows, most_rows, tensors_.positions).last(added), 0);
  std::ranges::fill(put(input.slots, rows, most_rows, tensors_.slots).last(added), -1);
  const auto logit_rows =
      put(input.logit_rows, input.logit_rows.size() + added, most_logits, tensors_.logit_rows);
  std::iota(logit_rows.end() - static_cast<std::ptrdiff_t>(added), logit_rows.end(),
            static_cast<int32_t>(given));
  FOVEA_CHECK(more.row_arrays.size() <= kMaxRowArrays);
  for (const RowArray& array : more.row_arrays) {
    const size_t most = array.logit_rows ? most_logits : most_rows;
    std::byte* const there =
        reserve(ElementType::u8, array.rows * array.row_bytes, most * array.row_bytes, *array.on_device);
    if (array.rows > 0) std::memcpy(there, array.data, array.rows * array.row_bytes);
  }

  q_offsets_.assign(host.q_offsets.begin(), host.q_offsets.end());
  kv_lens_.assign(host.kv_lens.begin(), host.kv_lens.end());
  for (size_t b = given_seqs; b < seqs; ++b) {
    const int32_t left = static_cast<int32_t>(rows) - q_offsets_.back();
    q_offsets_.push_back(q_offsets_.back() + (b + 1 == seqs ? left : std::min(left, 1)));
    kv_lens_.push_back(std::min(left, 1));
  }
  split_ = batch.split();
  split_.num_decodes += static_cast<int>(seqs - given_seqs);
  split_.decode_rows += static_cast<int>(added);
  split_.host_q_offsets = host.q_offsets;
  split_.host_kv_lens = host.kv_lens;
  meta_ = host;
  meta_.tokens = static_cast<int>(rows);
  meta_.page_table = {};
  meta_.page_table_stride = 0;
  const auto on_device = [&](std::span<const int32_t> values, size_t capacity) {
    Tensor there;
    put(values, values.size(), capacity, there);
    return elements(there);
  };
  meta_.q_offsets = on_device(q_offsets_, most_seqs + 1);
  split_.prefill_offsets = on_device(split_.prefill_offsets, most_seqs + 1);
  put(std::span<const int32_t>(kv_lens_), kv_lens_.size(), most_seqs, lens_there_);
  meta_.kv_lens = elements(lens_there_);
  const bool crosses = limits_.max_cross_pages > 0;
  const BatchMeta& cross = batch.encoder().cross_meta();
  Tensor indptr, cross_indptr, indices;
  const auto first = put<int32_t>({}, seqs + 1, most_seqs + 1, indptr);
  std::span<int32_t> cross_first;
  if (crosses) {
    FOVEA_CHECK(cross.kv_lens.size() == given_seqs);
    cross_lens_.assign(cross.kv_lens.begin(), cross.kv_lens.end());
    cross_lens_.resize(seqs, 1);
    cross_meta_.kv_lens = on_device(cross_lens_, most_seqs);
    cross_first = put<int32_t>({}, seqs + 1, most_seqs + 1, cross_indptr);
  }
  const size_t most_pages = most_seqs * static_cast<size_t>(limits_.max_pages + limits_.max_cross_pages);
  const size_t begin = offset_;
  auto* page = reinterpret_cast<int32_t*>(reserve(ElementType::i32, most_pages, most_pages, indices));
  const int32_t* const begin_pages = page;
  page = put_pages(host, seqs, first, begin_pages, page);
  if (crosses) page = put_pages(cross, seqs, cross_first, begin_pages, page);
  meta_.kv_indptr = elements(indptr);
  meta_.kv_indices = elements(indices);  // all of its room: entries past the last sequence's are not read
  if (crosses) {
    const auto lens = cross_meta_.kv_lens;
    cross_meta_ = meta_;
    cross_meta_.kv_lens = lens;
    cross_meta_.kv_indptr = elements(cross_indptr);
    cross_split_ = split_;
    cross_split_.host_kv_lens = cross.kv_lens;
  }
  const size_t bytes = begin + static_cast<size_t>(page - begin_pages) * sizeof(int32_t);
  return device_.copy_from_host(memory_.data(), blocks_[block_].data(), bytes, stream);
}

}  // namespace fovea
