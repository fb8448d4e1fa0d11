#include "model/weight_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/float16.h"
#include "base/printable.h"
#include "fovea/result.h"
#include "model/mxfp4.h"
#include "model/value_types.h"

namespace fovea {
namespace {

/// The stored row that becomes row `row`.
int64_t stored_row(const StoredMatrix& m, int64_t row) {
  const int64_t half = m.n / 2;
  return !m.interleaved ? row : row < half ? 2 * row : 2 * (row - half) + 1;
}

class StackedSource final : public WeightSource {
 public:
  StackedSource(std::vector<StoredRows> parts, int64_t n, int64_t k, DType dtype, SourceOwner owner)
      : WeightSource(n, k, dtype), parts_(std::move(parts)), owner_(std::move(owner)) {}

  Status read(int64_t first, int64_t count, DType to, std::byte* out) const override {
    int64_t begin = 0;  // of the part
    for (const StoredRows& part : parts_) {
      const int64_t from = std::max(first, begin), end = std::min(first + count, begin + part.rows);
      if (from < end) {
        FOVEA_RETURN_IF_ERROR(read_part(part, from - begin, end - from, to, out));
        out += (end - from) * k() * static_cast<int64_t>(size_of(to));
      }
      begin += part.rows;
    }
    return {};
  }

 private:
  Status read_part(const StoredRows& part, int64_t first, int64_t count, DType to, std::byte* out) const {
    const DType from = *part.tensor->entry->type.dtype();
    const auto word = static_cast<int64_t>(size_of(from));
    const int64_t begin = (part.first_element + first * k()) * word, elements = count * k();
    // Read, not copied from the mapping: its pages would count as this process's memory, and each costs a
    // fault.
    if (from == to)
      return part.tensor->read(static_cast<uint64_t>(begin), {out, static_cast<size_t>(elements * word)});
    const int64_t bad = convert_values(part.tensor->data + begin, from, elements, to, out);
    if (bad < 0) return {};
    return overflows(*part.tensor, value_at(part.tensor->data + begin, bad, from), to);
  }

  std::vector<StoredRows> parts_;
  SourceOwner owner_;
};

class ReorderedSource final : public WeightSource {
 public:
  ReorderedSource(const StoredMatrix& matrix, DType dtype, SourceOwner owner)
      : WeightSource(matrix.n, matrix.k, dtype), m_(matrix), owner_(std::move(owner)) {}

  Status read(int64_t first, int64_t count, DType to, std::byte* out) const override {
    const DType from = *m_.tensor->entry->type.dtype();
    const auto word = static_cast<int64_t>(size_of(from)), row_bytes = k() * word;
    const std::byte* data = m_.tensor->data + m_.index * n() * row_bytes;
    std::vector<std::byte> buffer(from == to ? 0 : static_cast<size_t>(count * row_bytes));
    std::byte* rows = from == to ? out : buffer.data();
    if (m_.transposed)
      transpose(data, word, first, count, rows);
    else
      for (int64_t r = 0; r < count; ++r)
        std::memcpy(rows + r * row_bytes, data + stored_row(m_, first + r) * row_bytes,
                    static_cast<size_t>(row_bytes));
    if (from == to) return {};
    const int64_t bad = convert_values(rows, from, count * k(), to, out);
    return bad < 0 ? Status() : overflows(*m_.tensor, value_at(rows, bad, from), to);
  }

 private:
  /// Row r, column c lies at data[c * n + stored_row(r)].
  void transpose(const std::byte* data, int64_t word, int64_t first, int64_t count, std::byte* out) const {
    constexpr int64_t kTile = 64;  // columns, whose lines stay in the L1 cache for the next rows
    for (int64_t c0 = 0; c0 < k(); c0 += kTile)
      for (int64_t r = 0; r < count; ++r) {
        const std::byte* from = data + stored_row(m_, first + r) * word;
        std::byte* to = out + r * k() * word;
        const int64_t c1 = std::min(c0 + kTile, k());
        if (word == 2)
          for (int64_t c = c0; c < c1; ++c)
            std::memcpy(to + c * 2, from + c * n() * 2, 2);
        else
          for (int64_t c = c0; c < c1; ++c)
            std::memcpy(to + c * 4, from + c * n() * 4, 4);
      }
  }

  StoredMatrix m_;
  SourceOwner owner_;
};

class Mxfp4Source final : public WeightSource {
 public:
  Mxfp4Source(const StoredMatrix& matrix, DType dtype, SourceOwner owner)
      : WeightSource(matrix.n, matrix.k, dtype), m_(matrix), owner_(std::move(owner)) {}

  Status read(int64_t first, int64_t count, DType to, std::byte* out) const override {
    const int64_t blocks = k() / kMxfp4BlockValues, row_bytes = k() * static_cast<int64_t>(size_of(to));
    std::vector<uint16_t> row(static_cast<size_t>(k()));
    for (int64_t r = 0; r < count; ++r, out += row_bytes) {
      const int64_t at = (m_.index * n() + stored_row(m_, first + r)) * blocks;
      if (const auto bad =
              decode_mxfp4(m_.tensor->data + at * kMxfp4BlockBytes, m_.scales->data + at, blocks, row.data()))
        return bad_mxfp4_scale(*m_.scales, at + *bad);
      const auto* values = reinterpret_cast<const std::byte*>(row.data());
      if (to == DType::bf16)
        std::memcpy(out, values, static_cast<size_t>(row_bytes));
      else if (convert_values(values, DType::bf16, k(), to, out) >= 0)
        return mxfp4_overflows(*m_.tensor);
    }
    return {};
  }

  WeightCoding coding() const override { return {WeightCode::mxfp4}; }

  Status read_codes(int64_t first, int64_t count, std::byte* out) const override {
    const int64_t blocks = k() / kMxfp4BlockValues, code_bytes = k() / 2;
    std::vector<uint16_t> row(static_cast<size_t>(k()));
    for (int64_t r = 0; r < count; ++r, out += code_row_bytes(WeightCode::mxfp4, k())) {
      const int64_t at = (m_.index * n() + stored_row(m_, first + r)) * blocks;
      const std::byte* scales = m_.scales->data + at;
      std::memcpy(out, m_.tensor->data + at * kMxfp4BlockBytes, static_cast<size_t>(code_bytes));
      std::memcpy(out + code_bytes, scales, static_cast<size_t>(blocks));
      if (std::all_of(scales, scales + blocks, [](std::byte s) { return s < kMxfp4FirstOverflow; })) continue;
      if (const auto bad = decode_mxfp4(out, out + code_bytes, blocks, row.data()))
        return bad_mxfp4_scale(*m_.scales, at + *bad);
    }
    return {};
  }

 private:
  StoredMatrix m_;
  SourceOwner owner_;
};

/// Codes from the low bits of dummy weights, all with one scale.
class DummyMxfp4Source final : public WeightSource {
 public:
  DummyMxfp4Source(DummyRows rows, int64_t k, std::shared_ptr<const DummyWeights> dummy)
      : WeightSource(rows.rows, k, dummy->dtype()), rows_(std::move(rows)), dummy_(std::move(dummy)) {}

  Status read(int64_t first, int64_t count, DType to, std::byte* out) const override {
    std::vector<std::byte> codes(static_cast<size_t>(code_row_bytes(WeightCode::mxfp4, k())));
    std::vector<uint16_t> row(static_cast<size_t>(k()));
    for (int64_t r = 0; r < count; ++r, out += k() * static_cast<int64_t>(size_of(to))) {
      FOVEA_RETURN_IF_ERROR(read_codes(first + r, 1, codes.data()));
      decode_mxfp4(codes.data(), codes.data() + k() / 2, k() / kMxfp4BlockValues, row.data());
      convert_values(reinterpret_cast<const std::byte*>(row.data()), DType::bf16, k(), to, out);
    }
    return {};
  }

  WeightCoding coding() const override { return {WeightCode::mxfp4}; }

  Status read_codes(int64_t first, int64_t count, std::byte* out) const override {
    constexpr std::byte kScale{120};  // codes have a root mean square of 2.9, so dummy weights' kStd
    const auto word = static_cast<int64_t>(size_of(dummy_->dtype()));
    std::vector<std::byte> drawn(static_cast<size_t>(k() * word));
    for (int64_t r = first; r < first + count; ++r) {
      dummy_->fill(rows_.name, r * k(), k(), drawn.data());
      // The bits of a 16-bit number's mantissa that are the least alike; of fp32 those above its table's.
      const auto code = [&](int64_t i) {
        return drawn[static_cast<size_t>(i * word + (word == 4 ? 2 : 0))] & std::byte{15};
      };
      for (int64_t i = 0; i < k(); i += 2)
        *out++ = code(i) | code(i + 1) << 4;
      out = std::fill_n(out, k() / kMxfp4BlockValues, kScale);
    }
    return {};
  }

 private:
  DummyRows rows_;
  std::shared_ptr<const DummyWeights> dummy_;
};

class DummySource final : public WeightSource {
 public:
  DummySource(std::vector<DummyRows> parts, int64_t n, int64_t k, std::shared_ptr<const DummyWeights> dummy)
      : WeightSource(n, k, dummy->dtype()), parts_(std::move(parts)), dummy_(std::move(dummy)) {}

  Status read(int64_t first, int64_t count, DType to, std::byte* out) const override {
    int64_t begin = 0;
    for (const DummyRows& part : parts_) {
      const int64_t from = std::max(first, begin), end = std::min(first + count, begin + part.rows);
      if (from < end) fill(part.name, (from - begin) * k(), (end - from) * k(), to, out);
      out += std::max<int64_t>(end - from, 0) * k() * static_cast<int64_t>(size_of(to));
      begin += part.rows;
    }
    return {};
  }

 private:
  void fill(const std::string& name, int64_t first, int64_t count, DType to, std::byte* out) const {
    constexpr int64_t kDrawn = 4;  // elements of one hash
    const int64_t skipped = first % kDrawn;
    if (to == dtype() && skipped == 0) return dummy_->fill(name, first, count, out);
    std::vector<std::byte> values(static_cast<size_t>(skipped + count) * size_of(dtype()));
    dummy_->fill(name, first - skipped, skipped + count, values.data());
    const std::byte* wanted = values.data() + skipped * static_cast<int64_t>(size_of(dtype()));
    if (to == dtype())
      std::memcpy(out, wanted, static_cast<size_t>(count) * size_of(to));
    else
      convert_values(wanted, dtype(), count, to, out);
  }

  std::vector<DummyRows> parts_;
  std::shared_ptr<const DummyWeights> dummy_;
};

class PackedSource final : public WeightSource {
 public:
  explicit PackedSource(const PackedView& packed)
      : WeightSource(packed.n, packed.k, packed.storage), packed_(packed) {}

  Status read(int64_t first, int64_t count, DType to, std::byte* out) const override {
    std::vector<float> row(static_cast<size_t>(k()));
    for (int64_t r = first; r < first + count; ++r, out += k() * static_cast<int64_t>(size_of(to))) {
      packed_.unpack_row(r, row.data());
      const int64_t bad =
          convert_values(reinterpret_cast<const std::byte*>(row.data()), DType::f32, k(), to, out);
      if (bad >= 0)
        return invalid("a weight of " + std::to_string(row[static_cast<size_t>(bad)]) + " is infinite in " +
                       std::string(to_string(to)) + "; use --dtype bfloat16 or float32");
    }
    return {};
  }

 private:
  PackedView packed_;
};

class RowsFrom final : public WeightSource {
 public:
  RowsFrom(std::shared_ptr<const WeightSource> source, int64_t first, int64_t count)
      : WeightSource(count, source->k(), source->dtype()), source_(std::move(source)), first_(first) {}

  Status read(int64_t first, int64_t count, DType to, std::byte* out) const override {
    return source_->read(first_ + first, count, to, out);
  }

 private:
  std::shared_ptr<const WeightSource> source_;
  int64_t first_;
};

class TransposedRows final : public WeightSource {
 public:
  TransposedRows(std::shared_ptr<const WeightSource> source, int64_t first, int64_t count)
      : WeightSource(source->k(), count, source->dtype()), source_(std::move(source)), first_(first) {}

  Status read(int64_t first, int64_t count, DType to, std::byte* out) const override {
    const auto word = static_cast<int64_t>(size_of(to));
    const int64_t width = source_->k();
    std::vector<std::byte> rows(static_cast<size_t>(k() * width * word));
    FOVEA_RETURN_IF_ERROR(source_->read(first_, k(), to, rows.data()));
    for (int64_t r = 0; r < count; ++r)
      for (int64_t c = 0; c < k(); ++c)
        std::memcpy(out + (r * k() + c) * word, rows.data() + (c * width + first + r) * word,
                    static_cast<size_t>(word));
    return {};
  }

 private:
  std::shared_ptr<const WeightSource> source_;
  int64_t first_;
};

class TapsFirst final : public WeightSource {
 public:
  TapsFirst(std::shared_ptr<const WeightSource> source, int64_t width)
      : WeightSource(source->n(), source->k(), source->dtype()), source_(std::move(source)), width_(width) {}

  Status read(int64_t first, int64_t count, DType to, std::byte* out) const override {
    const auto word = static_cast<int64_t>(size_of(to));
    std::vector<std::byte> rows(static_cast<size_t>(count * k() * word));
    FOVEA_RETURN_IF_ERROR(source_->read(first, count, to, rows.data()));
    const int64_t channels = k() / width_;
    for (int64_t r = 0; r < count; ++r)
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t t = 0; t < width_; ++t)
          std::memcpy(out + (r * k() + t * channels + c) * word,
                      rows.data() + (r * k() + c * width_ + t) * word, static_cast<size_t>(word));
    return {};
  }

 private:
  std::shared_ptr<const WeightSource> source_;
  int64_t width_;
};

template <class Rows>
int64_t rows_of(const std::vector<Rows>& parts) {
  int64_t rows = 0;
  for (const Rows& part : parts)
    rows += part.rows;
  return rows;
}

}  // namespace

std::shared_ptr<const WeightSource> stacked_source(std::vector<StoredRows> parts, int64_t k, DType dtype,
                                                   SourceOwner owner) {
  const int64_t n = rows_of(parts);
  return std::make_shared<StackedSource>(std::move(parts), n, k, dtype, std::move(owner));
}

std::shared_ptr<const WeightSource> reordered_source(const StoredMatrix& matrix, DType dtype,
                                                     SourceOwner owner) {
  if (!matrix.scales) return std::make_shared<ReorderedSource>(matrix, dtype, std::move(owner));
  FOVEA_CHECK(!matrix.transposed);
  return std::make_shared<Mxfp4Source>(matrix, dtype, std::move(owner));
}

std::shared_ptr<const WeightSource> dummy_source(std::vector<DummyRows> parts, int64_t k,
                                                 std::shared_ptr<const DummyWeights> dummy) {
  const int64_t n = rows_of(parts);
  return std::make_shared<DummySource>(std::move(parts), n, k, std::move(dummy));
}

std::shared_ptr<const WeightSource> dummy_mxfp4_source(DummyRows rows, int64_t k,
                                                       std::shared_ptr<const DummyWeights> dummy) {
  return std::make_shared<DummyMxfp4Source>(std::move(rows), k, std::move(dummy));
}

std::shared_ptr<const WeightSource> rows_from(std::shared_ptr<const WeightSource> source, int64_t first) {
  const int64_t count = source->n() - first;
  return std::make_shared<RowsFrom>(std::move(source), first, count);
}

std::shared_ptr<const WeightSource> cut_source(std::shared_ptr<const WeightSource> source, int64_t first,
                                               int64_t count, bool transposed) {
  FOVEA_CHECK(first >= 0 && count > 0 && first + count <= source->n());
  if (transposed) return std::make_shared<TransposedRows>(std::move(source), first, count);
  return std::make_shared<RowsFrom>(std::move(source), first, count);
}

std::shared_ptr<const WeightSource> taps_first(std::shared_ptr<const WeightSource> source, int64_t width) {
  FOVEA_CHECK(source->k() % width == 0);
  return std::make_shared<TapsFirst>(std::move(source), width);
}

std::shared_ptr<const WeightSource> packed_source(const PackedView& packed) {
  return std::make_shared<PackedSource>(packed);
}

Error overflows(const CheckpointTensor& tensor, float value, DType to) {
  return invalid(tensor.where() + " holds " + std::to_string(value) + ", which is infinite in " +
                 std::string(to_string(to)) + "; use --dtype " + (to == DType::f16 ? "bfloat16 or " : "") +
                 "float32");
}

Error bad_mxfp4_scale(const CheckpointTensor& scales, int64_t block) {
  return invalid(
      scales.where() + " holds " + std::to_string(static_cast<int>(scales.data[block])) + " for block " +
      std::to_string(block) +
      ", whose values are then beyond bfloat16; 255 isn't a number, 253 and 254 need small values; "
      "download the file again");
}

Error mxfp4_overflows(const CheckpointTensor& blocks) {
  return invalid(*blocks.file + ": tensor \"" + printable(blocks.name()) +
                 "\" holds values that are infinite in float16; use --dtype bfloat16 or float32");
}

int64_t convert_values(const std::byte* values, DType from, int64_t count, DType to, std::byte* out) {
  const float limit = overflow_limit(to);
  int64_t bad = -1;
  const auto convert = [&](auto round) {
    for (int64_t i = 0; i < count; ++i) {
      const float x = value_at(values, i, from), size = std::fabs(x);
      if (size >= limit && size < INFINITY && bad < 0) bad = i;
      const auto y = round(x);
      std::memcpy(out + i * static_cast<int64_t>(sizeof(y)), &y, sizeof(y));
    }
  };
  switch (to) {
    case DType::f32: convert([](float x) { return x; }); break;
    case DType::f16: convert([](float x) { return float_to_fp16(x); }); break;
    case DType::bf16: convert([](float x) { return float_to_bf16(x); }); break;
  }
  return bad;
}

}  // namespace fovea
