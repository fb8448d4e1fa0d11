#include "model/weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/float16.h"
#include "base/thread_pool.h"
#include "model/fp8_source.h"
#include "model/value_types.h"

namespace fovea {
namespace {

// Dummy weights are generated in blocks of about 1 Mi elements: they stay in the L2 cache until packed, and
// the cost of waking the threads per block is negligible.
constexpr int64_t kDummyBlock = 1 << 20;

}  // namespace

float round_to(float value, DType dtype) {
  switch (dtype) {
    case DType::f32: return value;
    case DType::f16: return fp16_to_float(float_to_fp16(value));
    case DType::bf16: return bf16_to_float(float_to_bf16(value));
  }
  return value;
}

bool WeightReader::only_planned(int64_t bytes) {
  // Guards against 64-bit overflow; no machine has a tenth of this.
  constexpr int64_t kMost = int64_t{1} << 61;
  if (mode_ == Mode::check) {
    planned_bytes_ = std::min(planned_bytes_ + std::min(bytes, kMost), kMost);
    return true;
  }
  if (progress_) progress_(loaded_bytes_, planned_bytes_);
  loaded_bytes_ += bytes;
  return false;
}

const CheckpointTensor* WeightReader::require(const std::string& name, std::initializer_list<int64_t> shape,
                                              std::string_view type) {
  const std::string& source = checkpoint_->source();
  const CheckpointTensor* tensor = checkpoint_->find(name);
  if (!tensor) {
    fail(invalid(
        source + ": tensor \"" + name + "\" is missing; config.json requires it, with shape " +
        shape_string(std::vector<uint64_t>(shape.begin(), shape.end())) +
        (name == "lm_head.weight" ? " (tie_word_embeddings = true takes the embedding instead)" : "")));
    return nullptr;
  }
  if (!std::ranges::equal(tensor->entry->shape, shape,
                          [](uint64_t a, int64_t b) { return std::cmp_equal(a, b); })) {
    fail(invalid(*tensor->file + ": tensor \"" + name + "\" has shape " + shape_string(tensor->entry->shape) +
                 ", but config.json requires " +
                 shape_string(std::vector<uint64_t>(shape.begin(), shape.end())) +
                 "; the two must come from the same model"));
    return nullptr;
  }
  if (type.empty() ? !tensor->entry->type.dtype().has_value() : tensor->entry->type.name != type) {
    fail(unsupported(*tensor->file + ": tensor \"" + name + "\" has dtype " +
                     std::string(tensor->entry->type.name) + "; " +
                     (type.empty() ? "supported are F32, F16, BF16" : std::string(type) + " is needed")));
    return nullptr;
  }
  if (mode_ == Mode::check) used_.push_back(tensor);
  return tensor;
}

/// The storage type of a (fused) matrix.
DType WeightReader::stored_as(const std::vector<const CheckpointTensor*>& tensors) const {
  if (dummy_) return dummy_->dtype();
  if (dtype_ && *dtype_ != DType::f32) return *dtype_;
  const DType first = *tensors.front()->entry->type.dtype();
  for (const CheckpointTensor* tensor : tensors)
    if (*tensor->entry->type.dtype() != first) return DType::f32;  // represents every type exactly
  return first;
}

/// False, with an error, if a finite value becomes infinite in `to`.
bool WeightReader::fits(const CheckpointTensor& tensor, DType to, int64_t first, int64_t count) {
  const DType from = *tensor.entry->type.dtype();
  if (from == to || from == DType::f16 || to == DType::f32) return true;
  const float limit = overflow_limit(to);
  if (count < 0) count = static_cast<int64_t>(tensor.bytes() / size_of(from)) - first;
  std::atomic<int64_t> bad{-1};
  pool_.parallel_ranges(count, 1024, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = first + begin; i < first + end; ++i) {
      const float x = std::fabs(value_at(tensor.data, i, from));
      if (x >= limit && x < INFINITY) bad.store(i, std::memory_order_relaxed);
    }
  });
  const int64_t index = bad.load();
  if (index < 0) return true;
  fail(overflows(tensor, value_at(tensor.data, index, from), to));
  return false;
}

void WeightReader::pack_dummy(PackedMatrix& out, int64_t first, int64_t rows, const std::string& name) {
  const int64_t columns = out.k();
  // Whole panels of rows, so that each block starts at a multiple of 4 elements.
  const int64_t block = std::clamp<int64_t>(kDummyBlock / columns / 32 * 32, 32, (rows + 31) / 32 * 32);
  AlignedArray<std::byte> buffer(static_cast<size_t>(block * columns) * size_of(dummy_->dtype()));
  for (int64_t row = 0; row < rows; row += block) {
    const int64_t count = std::min(block, rows - row);
    dummy_->fill(name, row * columns, count * columns, buffer.data(), pool_);
    out.pack_rows(first + row, count, buffer.data(), dummy_->dtype(), pool_);
  }
}

/// `width` > 0: each tensor is [rows, columns / width, width].
WeightMatrix WeightReader::stack(const std::vector<std::pair<std::string, int64_t>>& parts, int64_t columns,
                                 int64_t width) {
  std::vector<const CheckpointTensor*> tensors;
  int64_t rows = 0;
  for (const auto& [name, part_rows] : parts) {
    if (!status_) return {};
    rows += part_rows;
    if (checkpoint_)
      tensors.push_back(width > 0 ? require(name, {part_rows, columns / width, width})
                                  : require(name, {part_rows, columns}));
  }
  if (!status_) return {};
  const DType storage = stored_as(tensors);
  if (only_planned(rows * columns * static_cast<int64_t>(size_of(storage)))) return {};
  if (mode_ == Mode::describe) return describe(parts, tensors, columns, storage);
  PackedMatrix out(rows, columns, storage);
  int64_t first = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (dummy_) {
      pack_dummy(out, first, parts[i].second, parts[i].first);
    } else {
      if (!fits(*tensors[i], storage)) return {};
      out.pack_rows(first, parts[i].second, tensors[i]->data, *tensors[i]->entry->type.dtype(), pool_);
    }
    first += parts[i].second;
  }
  return out;
}

std::shared_ptr<const WeightSource> WeightReader::describe(
    const std::vector<std::pair<std::string, int64_t>>& parts,
    const std::vector<const CheckpointTensor*>& tensors, int64_t columns, DType storage) const {
  if (dummy_) {
    std::vector<DummyRows> rows;
    for (const auto& [name, count] : parts)
      rows.push_back({name, count});
    return dummy_source(std::move(rows), columns, dummy_);
  }
  std::vector<StoredRows> rows;
  for (size_t i = 0; i < parts.size(); ++i)
    rows.push_back({tensors[i], 0, parts[i].second});
  return stacked_source(std::move(rows), columns, storage, checkpoint_);
}

bool WeightReader::is_fp8(const std::vector<std::pair<std::string, int64_t>>& parts, bool linear) const {
  if (dummy_) return linear && dummy_fp8_ && parts.front().first.ends_with("_proj.weight");
  return std::ranges::any_of(parts, [&](const auto& part) {
    const CheckpointTensor* tensor = checkpoint_->find(part.first);
    return tensor && tensor->entry->type.name == "F8_E4M3";
  });
}

WeightMatrix WeightReader::stack_fp8(const std::vector<std::pair<std::string, int64_t>>& parts,
                                     int64_t columns, bool codes) {
  auto source = fp8_stack_source(parts, columns, codes);
  if (!source || mode_ == Mode::describe) return source ? WeightMatrix(std::move(source)) : WeightMatrix();
  const DType storage = source->dtype();
  return read_all(std::move(source), storage);
}

/// Null in check mode and after an error.
std::shared_ptr<const WeightSource> WeightReader::fp8_stack_source(
    const std::vector<std::pair<std::string, int64_t>>& parts, int64_t columns, bool codes) {
  if (!status_) return {};
  int64_t rows = 0;
  for (const auto& [name, part_rows] : parts)
    rows += part_rows;
  const DType storage = dummy_ ? dummy_->dtype() : dtype_.value_or(DType::bf16);
  std::vector<Fp8Part> stored;
  std::vector<DummyRows> random;
  for (const auto& [name, part_rows] : parts) {
    if (dummy_) {
      random.push_back({name, part_rows});
      continue;
    }
    const CheckpointTensor* found = checkpoint_->find(name);
    const bool coded = found && found->entry->type.name == "F8_E4M3";
    Fp8Part part{require(name, {part_rows, columns}, coded ? "F8_E4M3" : ""), nullptr, part_rows};
    if (!part.tensor) return {};
    if (coded) {
      const auto scales = find_fp8_scales(*checkpoint_, name, part_rows, columns);
      if (!scales) return fail(scales.error()), nullptr;
      part.scales = *scales;
      if (mode_ == Mode::check) {
        used_.push_back(*scales);
        // Activations are not quantised.
        const std::string input = name.substr(0, name.size() - std::string("weight").size()) + "input_scale";
        if (const CheckpointTensor* unused = checkpoint_->find(input)) used_.push_back(unused);
      }
    }
    stored.push_back(part);
  }
  if (only_planned(rows * columns * static_cast<int64_t>(size_of(storage)))) return {};
  return dummy_ ? dummy_fp8_source(std::move(random), columns, dummy_fp8_blocks_, dummy_)
                : fp8_source(std::move(stored), columns, storage, codes, checkpoint_);
}

std::shared_ptr<const WeightSource> WeightReader::decoded(const std::string& name, int64_t rows,
                                                          int64_t columns) {
  if (is_fp8({{name, rows}}, /*linear=*/false))
    return fp8_stack_source({{name, rows}}, columns, /*codes=*/false);
  std::vector<const CheckpointTensor*> tensors;
  if (checkpoint_ && status_) tensors.push_back(require(name, {rows, columns}));
  if (!status_) return nullptr;
  const DType storage = stored_as(tensors);
  if (only_planned(rows * columns * static_cast<int64_t>(size_of(storage)))) return nullptr;
  return describe({{name, rows}}, tensors, columns, storage);
}

std::vector<Linear> WeightReader::cuts(const std::string& name, int64_t rows, int64_t columns,
                                       const std::vector<Cut>& cuts) {
  std::vector<Linear> out(cuts.size());
  const auto whole = decoded(name, rows, columns);
  if (!whole) return out;
  for (size_t i = 0; i < cuts.size() && status_; ++i) {
    auto part = cut_source(whole, cuts[i].first, cuts[i].count, cuts[i].transposed);
    out[i].weight =
        mode_ == Mode::describe ? WeightMatrix(std::move(part)) : read_all(std::move(part), whole->dtype());
  }
  return out;
}

/// Packs a source, in blocks that stay in the L2 cache.
WeightMatrix WeightReader::read_all(std::shared_ptr<const WeightSource> source, DType storage) {
  const int64_t rows = source->n(), columns = source->k();
  const auto row_bytes = columns * static_cast<int64_t>(size_of(storage));
  const int64_t block = std::clamp<int64_t>(kDummyBlock / columns / 32 * 32, 32, (rows + 31) / 32 * 32);
  PackedMatrix out(rows, columns, storage);
  AlignedArray<std::byte> buffer(static_cast<size_t>(block * row_bytes));
  std::mutex mutex;
  for (int64_t row = 0; row < rows && status_; row += block) {
    const int64_t count = std::min(block, rows - row);
    pool_.parallel_ranges(count, 1, [&](int64_t begin, int64_t end, int) {
      Status read = source->read(row + begin, end - begin, storage, buffer.data() + begin * row_bytes);
      const std::lock_guard lock(mutex);
      if (!read) fail(std::move(read).error());
    });
    if (status_) out.pack_rows(row, count, buffer.data(), storage, pool_);
  }
  if (!status_) return {};
  return out;
}

WeightMatrix WeightReader::matrix(const std::string& name, int64_t rows, int64_t columns) {
  if (is_fp8({{name, rows}}, /*linear=*/false)) return stack_fp8({{name, rows}}, columns, /*codes=*/false);
  return stack({{name, rows}}, columns);
}

Linear WeightReader::fused(const std::string& prefix, std::initializer_list<Part> parts, int64_t columns,
                           bool bias) {
  std::vector<std::pair<std::string, int64_t>> names;
  int64_t rows = 0;
  for (const Part& part : parts) {
    names.emplace_back(prefix + std::string(part.name) + ".weight", part.rows);
    rows += part.rows;
  }
  Linear out;
  out.weight =
      is_fp8(names, /*linear=*/true) ? stack_fp8(names, columns, /*codes=*/true) : stack(names, columns);
  if (!bias) return out;
  if (mode_ != Mode::check) {
    out.bias = AlignedArray<float>(static_cast<size_t>(rows));
    std::fill_n(out.bias.data(), rows, 0.0f);
  }
  int64_t first = 0;
  for (const Part& part : parts) {
    AlignedArray<float> piece;
    if (part.bias) piece = vector(prefix + std::string(part.name) + ".bias", part.rows, 0.0f);
    if (piece.size()) std::copy_n(piece.data(), piece.size(), out.bias.data() + first);
    first += part.rows;
  }
  return out;
}

Linear WeightReader::convolution(const std::string& prefix, int64_t rows, int64_t channels, int64_t width) {
  Linear out;
  out.weight = stack({{prefix + ".weight", rows}}, channels * width, width);
  out.bias = vector(prefix + ".bias", rows, 0.0f);
  return out;
}

std::string WeightReader::first_of(std::initializer_list<std::string> candidates) const {
  const auto found = std::ranges::find_if(candidates, [&](const std::string& name) { return has(name); });
  return found == candidates.end() ? *candidates.begin() : *found;
}

AlignedArray<float> WeightReader::vector(const std::string& name, int64_t size, float dummy_mean, bool row) {
  return read_vector(name, size, dummy_mean, row, std::nullopt);
}

AlignedArray<float> WeightReader::exact_vector(const std::string& name, int64_t size, float dummy_mean) {
  return read_vector(name, size, dummy_mean, /*row=*/false, DType::f32);
}

AlignedArray<float> WeightReader::read_vector(const std::string& name, int64_t size, float dummy_mean,
                                              bool row, std::optional<DType> to) {
  if (!status_) return {};
  const CheckpointTensor* tensor = nullptr;
  if (checkpoint_) tensor = row ? require(name, {1, size}) : require(name, {size});
  if (!status_) return {};
  if (only_planned(size * static_cast<int64_t>(sizeof(float)))) return {};
  if (!dummy_) return values(*tensor, 0, size, to);
  AlignedArray<float> out(static_cast<size_t>(size));
  dummy_->fill_vector(name, dummy_mean, size, out.data());
  return out;
}

/// Elements [first, first + count), rounded; empty after an error.
AlignedArray<float> WeightReader::values(const CheckpointTensor& tensor, int64_t first, int64_t count,
                                         std::optional<DType> as) {
  const DType from = *tensor.entry->type.dtype(), to = as.value_or(dtype_.value_or(from));
  if (!fits(tensor, to, first, count)) return {};
  AlignedArray<float> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = round_to(value_at(tensor.data, first + static_cast<int64_t>(i), from), to);
  return out;
}

std::vector<std::string_view> WeightReader::unused() const {
  std::vector<std::string_view> names;
  if (!checkpoint_) return names;
  auto used = used_;
  std::ranges::sort(used);
  for (const CheckpointTensor& tensor : checkpoint_->tensors()) {
    const bool known = std::ranges::any_of(
        ignored_, [&](const std::string& prefix) { return tensor.name().starts_with(prefix); });
    if (!known && !std::ranges::binary_search(used, &tensor)) names.push_back(tensor.name());
  }
  return names;
}

}  // namespace fovea
