#include "ops/lora_slots.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/float16.h"

namespace fovea {
namespace {

constexpr int64_t kSlotPart = 256;  // bytes

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Row `row` of a matrix, as `dtype`.
void write_matrix_row(const PackedMatrix& matrix, int64_t row, DType dtype, std::byte* to,
                      std::vector<float>& scratch) {
  const auto count = static_cast<size_t>(matrix.k());
  scratch.resize(count);
  matrix.unpack_row(row, scratch.data());
  if (dtype == DType::f32) {
    std::memcpy(to, scratch.data(), count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const uint16_t bits = dtype == DType::f16 ? float_to_fp16(scratch[i]) : float_to_bf16(scratch[i]);
    std::memcpy(to + i * sizeof bits, &bits, sizeof bits);
  }
}

}  // namespace

int64_t LoraPlace::a_stride() const {
  return rounded_up(k, 8);  // 16 bytes of 16-bit types
}

int64_t LoraLayout::table_bytes() const {
  return rounded_up(lines * static_cast<int64_t>(sizeof(LoraLine)), kSlotPart);
}

int64_t LoraLayout::slot_bytes() const {
  return table_bytes() + rounded_up(elements * max_rank * static_cast<int64_t>(size_of(dtype)), kSlotPart);
}

void finish(LoraLayout& layout) {
  FOVEA_CHECK(layout.max_rank > 0);
  layout.max_rank = static_cast<int>(rounded_up(layout.max_rank, LoraLayout::kRanks));
  layout.lines = layout.elements = 0;
  const auto put = [&](LoraPlace& place) {
    if (place.empty()) return;
    place.line = static_cast<int>(layout.lines++);
    place.a = layout.elements;
    place.b = place.a + place.modules * place.a_stride();
    layout.elements = place.b + place.n;
  };
  for (auto& sites : layout.layers)
    std::ranges::for_each(sites, put);
  for (auto& layer : layout.experts)
    for (auto& sites : layer)
      std::ranges::for_each(sites, put);
}

std::vector<std::byte> lora_image(const LoraAdapter& adapter, const LoraLayout& layout) {
  const auto word = static_cast<int64_t>(size_of(layout.dtype));
  const int64_t rank = rounded_up(adapter.rank, LoraLayout::kRanks);
  FOVEA_CHECK(rank > 0 && rank <= layout.max_rank && adapter.layers.size() == layout.layers.size());
  const int64_t table = layout.table_bytes();
  std::vector<std::byte> image(static_cast<size_t>(table + layout.elements * rank * word));
  std::vector<float> row;
  const auto write = [&](const LoraPlace& place, const LoraWeights& weights) {
    FOVEA_CHECK(weights.empty() || !place.empty());
    if (place.empty()) return;
    LoraLine line;
    line.rank = static_cast<int32_t>(rank);
    std::byte* const a = image.data() + table + place.a * rank * word;
    std::byte* const b = image.data() + table + place.b * rank * word;
    for (const LoraWeights::Module& module : weights.modules) {
      const auto* const found = std::find(place.first_output.begin(),
                                          place.first_output.begin() + place.modules, module.first_output);
      const int64_t m = found - place.first_output.begin(), r = module.b.k();
      FOVEA_CHECK(m < place.modules && r <= rank && weights.a.k() == place.k);
      line.scale[static_cast<size_t>(m)] = module.scale;
      for (int64_t i = 0; i < r; ++i)
        write_matrix_row(weights.a, module.first_rank + i, layout.dtype,
                         a + (m * rank + i) * place.a_stride() * word, row);
      for (int64_t i = 0; i < module.b.n(); ++i)
        write_matrix_row(module.b, i, layout.dtype, b + (module.first_output + i) * rank * word, row);
    }
    std::memcpy(image.data() + place.line * static_cast<int64_t>(sizeof line), &line, sizeof line);
  };
  for (size_t layer = 0; layer < layout.layers.size(); ++layer)
    for (size_t site = 0; site < kLoraSites; ++site)
      write(layout.layers[layer][site], adapter.layers[layer][site]);
  static const std::array<LoraWeights, 2> kNone;
  for (size_t layer = 0; layer < layout.experts.size(); ++layer) {
    const bool adapted = layer < adapter.experts.size() && !adapter.experts[layer].empty();
    for (size_t expert = 0; expert < layout.experts[layer].size(); ++expert)
      for (size_t site = 0; site < 2; ++site)
        write(layout.experts[layer][expert][site], (adapted ? adapter.experts[layer][expert] : kNone)[site]);
  }
  return image;
}

void LoraTileList::build(std::span<const int32_t> slot_of, int64_t block_rows, int fill) {
  const auto rows = static_cast<int64_t>(slot_of.size());
  if (fill > 0) block_rows = rows;
  order.resize(slot_of.size());
  std::iota(order.begin(), order.end(), 0);
  tiles.clear();
  of_block.assign(1, 0);
  for (int64_t first = 0; first < rows; first += block_rows) {
    const int64_t end = std::min(rows, first + block_rows);
    const auto slot = [&](int64_t at) {
      return slot_of[static_cast<size_t>(order[static_cast<size_t>(at)])];
    };
    std::stable_sort(order.begin() + first, order.begin() + end, [&](int32_t a, int32_t b) {
      return slot_of[static_cast<size_t>(a)] < slot_of[static_cast<size_t>(b)];
    });
    for (int64_t at = first; at < end;) {
      LoraTile& tile = tiles.emplace_back();
      tile.slot = slot(at);
      tile.first = static_cast<int32_t>(at);
      while (at < end && tile.rows < kLoraTileRows && slot(at) == tile.slot)
        ++at, ++tile.rows;
    }
    of_block.push_back(static_cast<int32_t>(tiles.size()));
  }
  if (fill == 0) return;
  FOVEA_CHECK(tiles.size() <= static_cast<size_t>(fill));
  tiles.resize(static_cast<size_t>(fill));
  of_block.assign({0, fill});
}

int LoraTileList::most(int rows, int slots) {
  return std::min(rows, rows / kLoraTileRows + std::min(slots + 1, rows));
}

}  // namespace fovea
