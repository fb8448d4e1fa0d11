#include "model/fp8_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/float8.h"
#include "base/printable.h"
#include "fovea/result.h"
#include "model/value_types.h"

namespace fovea {
namespace {

constexpr int64_t kBlock = 128;

int64_t blocks_of(int64_t size) {
  return (size + kBlock - 1) / kBlock;
}

const float* e4m3_table() {
  static const auto table = [] {
    std::array<float, 256> values{};
    for (int i = 0; i < 256; ++i)
      values[static_cast<size_t>(i)] = e4m3_to_float(static_cast<uint8_t>(i));
    return values;
  }();
  return table.data();
}

int64_t count_of(const CheckpointTensor& scales) {
  int64_t count = 1;
  for (const uint64_t size : scales.entry->shape)
    count *= static_cast<int64_t>(size);
  return count;
}

bool is_nan(std::byte code) {
  return (code & std::byte{0x7f}) == std::byte{0x7f};
}

/// A row of k codes, each times the scale of its `scale_block` inputs; 0 = all.
void decode(const std::byte* codes, const float* scales, int64_t scale_block, int64_t k, float* out) {
  const float* table = e4m3_table();
  for (int64_t i = 0; i < k; ++i)
    out[i] = table[static_cast<size_t>(codes[i])] * scales[scale_block == 0 ? 0 : i / scale_block];
}

class Fp8Source final : public WeightSource {
 public:
  Fp8Source(std::vector<Fp8Part> parts, int64_t n, int64_t k, DType dtype, bool codes, SourceOwner owner)
      : WeightSource(n, k, dtype), parts_(std::move(parts)), codes_(codes), owner_(std::move(owner)) {
    for (const Fp8Part& part : parts_) {
      codes_ = codes_ && part.scales && by_blocks(part) == by_blocks(parts_.front());
      blocks_ = blocks_ || (part.scales && by_blocks(part));
    }
  }

  Status read(int64_t first, int64_t count, DType to, std::byte* out) const override {
    const auto row_bytes = k() * static_cast<int64_t>(size_of(to));
    std::vector<float> row(static_cast<size_t>(k())), scales(static_cast<size_t>(blocks_of(k())));
    return each_part(first, count, [&](const Fp8Part& part, int64_t from, int64_t rows) -> Status {
      for (int64_t r = from; r < from + rows; ++r, out += row_bytes) {
        if (!part.scales) {
          const DType stored = *part.tensor->entry->type.dtype();
          const std::byte* values = part.tensor->data + r * k() * static_cast<int64_t>(size_of(stored));
          const int64_t bad = convert_values(values, stored, k(), to, out);
          if (bad >= 0) return overflows(*part.tensor, value_at(values, bad, stored), to);
          continue;
        }
        const std::byte* codes = part.tensor->data + r * k();
        FOVEA_RETURN_IF_ERROR(check_codes(part, codes, k()));
        scales_of(part, r, scales.data());
        decode(codes, scales.data(), by_blocks(part) ? kBlock : 0, k(), row.data());
        const auto* values = reinterpret_cast<const std::byte*>(row.data());
        const int64_t bad = convert_values(values, DType::f32, k(), to, out);
        if (bad >= 0) return overflows(*part.tensor, row[static_cast<size_t>(bad)], to);
      }
      return {};
    });
  }

  WeightCoding coding() const override {
    if (!codes_) return {};
    return blocks_ ? WeightCoding{WeightCode::e4m3, kBlock, kBlock} : WeightCoding{WeightCode::e4m3, 1, 0};
  }

  Status read_codes(int64_t first, int64_t count, std::byte* out) const override {
    return each_part(first, count, [&](const Fp8Part& part, int64_t from, int64_t rows) -> Status {
      const int64_t bytes = rows * k();
      FOVEA_RETURN_IF_ERROR(
          part.tensor->read(static_cast<uint64_t>(from * k()), {out, static_cast<size_t>(bytes)}));
      FOVEA_RETURN_IF_ERROR(check_codes(part, out, bytes));
      out += bytes;
      return {};
    });
  }

  Status read_scales(int64_t first, int64_t count, float* out) const override {
    return each_part(first, count, [&](const Fp8Part& part, int64_t from, int64_t rows) -> Status {
      for (int64_t r = from; r < from + rows; ++r, out += blocks_ ? blocks_of(k()) : 1)
        scales_of(part, r, out);
      return {};
    });
  }

 private:
  /// f(part, first row of it, rows)
  template <class F>
  Status each_part(int64_t first, int64_t count, F&& f) const {
    int64_t begin = 0;
    for (const Fp8Part& part : parts_) {
      const int64_t from = std::max(first, begin), end = std::min(first + count, begin + part.rows);
      if (from < end) FOVEA_RETURN_IF_ERROR(f(part, from - begin, end - from));
      begin += part.rows;
    }
    return {};
  }

  static bool by_blocks(const Fp8Part& part) {
    const auto& shape = part.scales->entry->shape;
    return count_of(*part.scales) != 1 && shape.size() == 2 &&
           !(shape[1] == 1 && std::cmp_equal(shape[0], part.rows));
  }

  /// One scale, or one for each 128 inputs.
  void scales_of(const Fp8Part& part, int64_t row, float* out) const {
    const DType type = *part.scales->entry->type.dtype();
    const auto value = [&](int64_t i) { return value_at(part.scales->data, i, type); };
    if (by_blocks(part))
      for (int64_t b = 0; b < blocks_of(k()); ++b)
        out[b] = value(row / kBlock * blocks_of(k()) + b);
    else
      out[0] = value(count_of(*part.scales) == 1 ? 0 : row);
  }

  static Status check_codes(const Fp8Part& part, const std::byte* codes, int64_t count) {
    if (std::none_of(codes, codes + count, is_nan)) return {};
    return invalid(part.tensor->where() + " holds a number that is not finite; download the file again");
  }

  std::vector<Fp8Part> parts_;
  bool codes_, blocks_ = false;
  SourceOwner owner_;
};

class DummyFp8Source final : public WeightSource {
 public:
  DummyFp8Source(std::vector<DummyRows> parts, int64_t n, int64_t k, bool blocks,
                 const std::shared_ptr<const DummyWeights>& dummy)
      : WeightSource(n, k, dummy->dtype()),
        blocks_(blocks),
        values_(dummy_source(std::move(parts), k, dummy)) {}

  Status read(int64_t first, int64_t count, DType to, std::byte* out) const override {
    std::vector<std::byte> codes(static_cast<size_t>(k()));
    std::vector<float> row(static_cast<size_t>(k()));
    const float scale = kScale;
    for (int64_t r = first; r < first + count; ++r, out += k() * static_cast<int64_t>(size_of(to))) {
      FOVEA_RETURN_IF_ERROR(read_codes(r, 1, codes.data()));
      decode(codes.data(), &scale, 0, k(), row.data());
      convert_values(reinterpret_cast<const std::byte*>(row.data()), DType::f32, k(), to, out);
    }
    return {};
  }

  WeightCoding coding() const override {
    return blocks_ ? WeightCoding{WeightCode::e4m3, kBlock, kBlock} : WeightCoding{WeightCode::e4m3, 1, 0};
  }

  Status read_codes(int64_t first, int64_t count, std::byte* out) const override {
    std::vector<float> values(static_cast<size_t>(count * k()));
    FOVEA_RETURN_IF_ERROR(
        values_->read(first, count, DType::f32, reinterpret_cast<std::byte*>(values.data())));
    for (const float v : values)
      *out++ = static_cast<std::byte>(float_to_e4m3(v / kScale));
    return {};
  }

  Status read_scales(int64_t, int64_t count, float* out) const override {
    std::fill_n(out, count * (blocks_ ? blocks_of(k()) : 1), kScale);
    return {};
  }

 private:
  static constexpr float kScale = 0x1p-11f;  // up to 0.2, ten standard deviations of dummy weights
  bool blocks_;
  std::shared_ptr<const WeightSource> values_;
};

}  // namespace

Result<const CheckpointTensor*> find_fp8_scales(const Checkpoint& checkpoint, const std::string& name,
                                                int64_t rows, int64_t columns) {
  const CheckpointTensor* scales = nullptr;
  for (const char* suffix : {"_scale", "_scale_inv"})
    if (!scales) scales = checkpoint.find(name + suffix);
  if (!scales)
    return invalid(checkpoint.source() + ": tensor \"" + printable(name) +
                   "\" is F8_E4M3, but there is no tensor with its scales, " + printable(name) +
                   "_scale or _scale_inv");
  const auto& shape = scales->entry->shape;
  const auto is = [&](std::initializer_list<int64_t> wanted) {
    return std::ranges::equal(shape, wanted, [](uint64_t a, int64_t b) { return std::cmp_equal(a, b); });
  };
  const bool one = std::ranges::all_of(shape, [](uint64_t size) { return size == 1; });
  if (!one && !is({rows}) && !is({rows, 1}) && !is({blocks_of(rows), blocks_of(columns)}))
    return unsupported(scales->where() + " has shape " + shape_string(shape) + "; for weights of " +
                       std::to_string(rows) + " x " + std::to_string(columns) +
                       " one scale, one for each output, or one for each block of 128 x 128 is supported");
  const auto type = scales->entry->type.dtype();
  if (!type)
    return unsupported(scales->where() + " has dtype " + std::string(scales->entry->type.name) +
                       "; scales may be F32, F16 or BF16");
  for (int64_t i = 0; i < count_of(*scales); ++i)
    if (const float value = value_at(scales->data, i, *type); !(value >= 0) || !std::isfinite(value))
      return invalid(scales->where() + " holds " + std::to_string(value) +
                     "; scales must be finite and not negative; download the file again");
  return scales;
}

std::shared_ptr<const WeightSource> fp8_source(std::vector<Fp8Part> parts, int64_t k, DType dtype, bool codes,
                                               SourceOwner owner) {
  int64_t n = 0;
  for (const Fp8Part& part : parts)
    n += part.rows;
  return std::make_shared<Fp8Source>(std::move(parts), n, k, dtype, codes, std::move(owner));
}

std::shared_ptr<const WeightSource> dummy_fp8_source(std::vector<DummyRows> parts, int64_t k, bool blocks,
                                                     const std::shared_ptr<const DummyWeights>& dummy) {
  int64_t n = 0;
  for (const DummyRows& part : parts)
    n += part.rows;
  return std::make_shared<DummyFp8Source>(std::move(parts), n, k, blocks, dummy);
}

}  // namespace fovea
