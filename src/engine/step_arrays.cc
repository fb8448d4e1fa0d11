#include "engine/step_arrays.h"

#include <cstring>

#include "base/check.h"

namespace fovea {
namespace {

size_t padded(size_t bytes) {
  return (bytes + Device::kAlignment - 1) / Device::kAlignment * Device::kAlignment;
}

template <class T>
std::span<const T> elements(const Tensor& t) {
  return {t.as<const T>(), static_cast<size_t>(t.elements())};
}

}  // namespace

StepArrays::StepArrays(Device& device, const Limits& limits) : limits_(limits), device_(device) {
  const auto tokens = static_cast<size_t>(limits.max_tokens), seqs = static_cast<size_t>(limits.max_seqs);
  constexpr size_t kInt = sizeof(int32_t);
  block_bytes_ = 2 * padded(tokens * kInt) + padded(tokens * sizeof(int64_t)) +
                 padded(static_cast<size_t>(limits.max_logit_rows) * kInt) + 2 * padded((seqs + 1) * kInt) +
                 padded(seqs * kInt) +
                 padded(dense_bytes(ElementType::i32, {limits.max_seqs, limits.max_pages}));
  memory_ = Buffer(device, block_bytes_);
  blocks_.assign(static_cast<size_t>(limits.open_steps), std::vector<std::byte>(block_bytes_));
}

/// Queues a copy of `values` to `offset` and returns it; `offset` advances by the padded size of `capacity`
/// elements.
template <class T>
Tensor StepArrays::copy_in(std::span<const T> values, size_t& offset, size_t capacity, Stream& stream) {
  FOVEA_CHECK(values.size() <= capacity);
  std::byte* staged = blocks_[block_].data() + offset;
  if (!values.empty()) std::memcpy(staged, values.data(), values.size_bytes());
  const Tensor there = memory_.tensor(element_type<T>(), {static_cast<int64_t>(values.size())}, offset);
  if (status_ && !values.empty())
    status_ = device_.copy_from_host(there.data, staged, values.size_bytes(), stream);
  offset += padded(capacity * sizeof(T));
  return there;
}

Status StepArrays::upload(const BatchBuilder& batch, Stream& stream) {
  block_ = (block_ + 1) % blocks_.size();
  const ForwardInput input = batch.input();
  const auto tokens = static_cast<size_t>(limits_.max_tokens), seqs = static_cast<size_t>(limits_.max_seqs);
  size_t offset = 0;
  status_ = {};
  tensors_.token_ids = copy_in(input.token_ids, offset, tokens, stream);
  tensors_.positions = copy_in(input.positions, offset, tokens, stream);
  tensors_.slots = copy_in(input.slots, offset, tokens, stream);
  tensors_.logit_rows =
      copy_in(input.logit_rows, offset, static_cast<size_t>(limits_.max_logit_rows), stream);

  meta_ = batch.meta();
  split_ = batch.split();
  split_.host_q_offsets = meta_.q_offsets;
  split_.host_kv_lens = meta_.kv_lens;
  meta_.tokens = static_cast<int>(input.token_ids.size());
  const auto on_device = [&](std::span<const int32_t> values, size_t capacity) {
    return elements<int32_t>(copy_in(values, offset, capacity, stream));
  };
  meta_.q_offsets = on_device(meta_.q_offsets, seqs + 1);
  split_.prefill_offsets = on_device(split_.prefill_offsets, seqs + 1);
  meta_.kv_lens = on_device(meta_.kv_lens, seqs);
  meta_.page_table = on_device(meta_.page_table, seqs * static_cast<size_t>(limits_.max_pages));
  return status_;
}

}  // namespace fovea
