// Tensors that hold the matrices of all experts. Transposed, interleaved and MXFP4 ones are packed block by
// block, so that loading needs only one extra block of memory.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "base/printable.h"
#include "base/thread_pool.h"
#include "model/mxfp4.h"
#include "model/weights.h"

namespace fovea {
namespace {

using ExpertTensor = WeightReader::ExpertTensor;

constexpr int64_t kBlockElements = 1 << 20;  // fits in the L2 cache until packed
constexpr int64_t kTile = 64;                // columns of a transposed tensor per tile: fits in L1

/// The stored row that becomes row `row`.
int64_t stored_row(const ExpertTensor& tensor, int64_t row) {
  const int64_t half = tensor.rows / 2;
  return !tensor.interleaved ? row : row < half ? 2 * row : 2 * (row - half) + 1;
}

/// fill(begin, end, buffer) writes rows [begin, end) as `dtype`; it runs on all threads. Blocks are whole
/// panels of rows. Returns false if a fill does.
template <class Fill>
bool pack_blocks(PackedMatrix& out, DType dtype, ThreadPool& pool, const Fill& fill) {
  const int64_t rows = out.n(), columns = out.k(), row_bytes = columns * static_cast<int64_t>(size_of(dtype));
  const int64_t block =
      std::min(std::max<int64_t>(kBlockElements / columns / 32, 1) * 32, (rows + 31) / 32 * 32);
  AlignedArray<std::byte> buffer(static_cast<size_t>(block * row_bytes));
  std::atomic<bool> good{true};
  for (int64_t first = 0; first < rows && good; first += block) {
    const int64_t count = std::min(block, rows - first);
    pool.parallel_ranges(count, 1, [&](int64_t begin, int64_t end, int) {
      if (!fill(first + begin, first + end, buffer.data() + begin * row_bytes)) good = false;
    });
    if (good) out.pack_rows(first, count, buffer.data(), dtype, pool);
  }
  return good;
}

/// Rows [begin, end) of a matrix whose element (r, c) lies at data[c * row count + r] before interleaving.
template <class Word>
void transpose_rows(const ExpertTensor& tensor, const std::byte* data, int64_t begin, int64_t end,
                    std::byte* out) {
  for (int64_t c0 = 0; c0 < tensor.columns; c0 += kTile) {
    const int64_t c1 = std::min(c0 + kTile, tensor.columns);
    for (int64_t r = begin; r < end; ++r) {
      const std::byte* from = data + stored_row(tensor, r) * static_cast<int64_t>(sizeof(Word));
      std::byte* to = out + (r - begin) * tensor.columns * static_cast<int64_t>(sizeof(Word));
      for (int64_t c = c0; c < c1; ++c)  // unaligned
        std::memcpy(to + c * static_cast<int64_t>(sizeof(Word)),
                    from + c * tensor.rows * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
    }
  }
}

void copy_rows(const ExpertTensor& tensor, const std::byte* data, int64_t row_bytes, int64_t begin,
               int64_t end, std::byte* out) {
  for (int64_t r = begin; r < end; ++r, out += row_bytes)
    std::memcpy(out, data + stored_row(tensor, r) * row_bytes, static_cast<size_t>(row_bytes));
}

/// The name that seeds an expert's dummy weights; with the tensor's name all experts would be equal.
std::string dummy_name(const ExpertTensor& tensor, int64_t index) {
  return tensor.name + "." + std::to_string(index);
}

}  // namespace

Linear WeightReader::expert(const ExpertTensor& tensor, int64_t index, bool bias) {
  Linear out;
  out.weight = tensor.mxfp4 ? mxfp4_matrix(tensor, index) : expert_matrix(tensor, index);
  if (bias) out.bias = expert_bias(tensor, index);
  return out;
}

WeightMatrix WeightReader::expert_matrix(const ExpertTensor& tensor, int64_t index) {
  if (!status_) return {};
  const CheckpointTensor* stored = nullptr;
  if (checkpoint_) {
    stored = tensor.transposed ? require(tensor.name, {tensor.experts, tensor.columns, tensor.rows})
                               : require(tensor.name, {tensor.experts, tensor.rows, tensor.columns});
    if (!stored) return {};
  }
  const DType storage = stored_as({stored});
  const int64_t size = tensor.rows * tensor.columns;
  if (only_planned(size * static_cast<int64_t>(size_of(storage)))) return {};
  if (mode_ == Mode::describe) {
    if (dummy_) return dummy_source({{dummy_name(tensor, index), tensor.rows}}, tensor.columns, dummy_);
    if (!tensor.transposed && !tensor.interleaved)
      return stacked_source({{stored, index * size, tensor.rows}}, tensor.columns, storage, checkpoint_);
    const StoredMatrix matrix{
        stored, nullptr, index, tensor.rows, tensor.columns, tensor.transposed, tensor.interleaved};
    return reordered_source(matrix, storage, checkpoint_);
  }
  PackedMatrix out(tensor.rows, tensor.columns, storage);
  if (dummy_) {
    pack_dummy(out, 0, tensor.rows, dummy_name(tensor, index));
    return out;
  }
  if (!fits(*stored, storage, index * size, size)) return {};
  const DType dtype = *stored->entry->type.dtype();
  const auto word = static_cast<int64_t>(size_of(dtype));
  const std::byte* data = stored->data + index * size * word;
  if (!tensor.transposed && !tensor.interleaved) {
    out.pack_rows(0, tensor.rows, data, dtype, pool_);
    return out;
  }
  pack_blocks(out, dtype, pool_, [&](int64_t begin, int64_t end, std::byte* to) {
    if (!tensor.transposed)
      copy_rows(tensor, data, tensor.columns * word, begin, end, to);
    else if (word == 4)
      transpose_rows<uint32_t>(tensor, data, begin, end, to);
    else
      transpose_rows<uint16_t>(tensor, data, begin, end, to);
    return true;
  });
  return out;
}

WeightMatrix WeightReader::mxfp4_matrix(const ExpertTensor& tensor, int64_t index) {
  if (!status_) return {};
  if (dummy_) return dummy_mxfp4(tensor, index);
  const int64_t blocks_of_row = tensor.columns / kMxfp4BlockValues;
  const CheckpointTensor* blocks =
      require(tensor.name + "_blocks", {tensor.experts, tensor.rows, blocks_of_row, kMxfp4BlockBytes}, "U8");
  const CheckpointTensor* scales =
      blocks ? require(tensor.name + "_scales", {tensor.experts, tensor.rows, blocks_of_row}, "U8") : nullptr;
  if (!scales) return {};
  const DType storage = dtype_ == DType::f16 ? DType::f16 : DType::bf16;
  if (only_planned(tensor.rows * tensor.columns * static_cast<int64_t>(size_of(storage)))) return {};
  if (mode_ == Mode::describe)
    return reordered_source({blocks, scales, index, tensor.rows, tensor.columns, false, tensor.interleaved},
                            storage, checkpoint_);
  PackedMatrix out(tensor.rows, tensor.columns, storage);
  std::atomic<int64_t> bad_block{-1};
  const bool good = pack_blocks(out, DType::bf16, pool_, [&](int64_t begin, int64_t end, std::byte* buffer) {
    auto* to = reinterpret_cast<uint16_t*>(buffer);
    for (int64_t r = begin; r < end; ++r, to += tensor.columns) {
      const int64_t first = (index * tensor.rows + stored_row(tensor, r)) * blocks_of_row;
      if (const auto bad =
              decode_mxfp4(blocks->data + first * kMxfp4BlockBytes, scales->data + first, blocks_of_row, to))
        return bad_block = first + *bad, false;
      // float16 ends at 65504; bf16 above it starts at 65536.
      if (storage == DType::f16 && std::any_of(to, to + tensor.columns, [](uint16_t bits) {
            return std::fabs(bf16_to_float(bits)) >= 65536.0f;
          }))
        return false;
    }
    return true;
  });
  if (good) return out;
  fail(bad_block >= 0 ? bad_mxfp4_scale(*scales, bad_block) : mxfp4_overflows(*blocks));
  return {};
}

WeightMatrix WeightReader::dummy_mxfp4(const ExpertTensor& tensor, int64_t index) {
  const DType storage = dummy_->dtype();
  if (only_planned(tensor.rows * tensor.columns * static_cast<int64_t>(size_of(storage)))) return {};
  auto source = dummy_mxfp4_source({dummy_name(tensor, index), tensor.rows}, tensor.columns, dummy_);
  if (mode_ == Mode::describe) return source;
  return read_all(std::move(source), storage);
}

AlignedArray<float> WeightReader::expert_bias(const ExpertTensor& tensor, int64_t index) {
  if (!status_) return {};
  const std::string name = tensor.name + "_bias";
  const CheckpointTensor* stored = checkpoint_ ? require(name, {tensor.experts, tensor.rows}) : nullptr;
  if (!status_) return {};
  if (only_planned(tensor.rows * static_cast<int64_t>(sizeof(float)))) return {};
  AlignedArray<float> out(static_cast<size_t>(tensor.rows));
  if (dummy_) {
    dummy_->fill_vector(dummy_name(tensor, index) + "_bias", 0.0f, tensor.rows, out.data());
    return out;
  }
  const AlignedArray<float> all = values(*stored, index * tensor.rows, tensor.rows);
  if (all.size() == 0) return {};
  for (int64_t r = 0; r < tensor.rows; ++r)
    out[static_cast<size_t>(r)] = all[static_cast<size_t>(stored_row(tensor, r))];
  return out;
}

}  // namespace fovea
