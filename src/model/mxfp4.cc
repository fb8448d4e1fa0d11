#include "model/mxfp4.h"

#include <array>

namespace fovea {
namespace {

using Table = std::array<std::array<uint16_t, 16>, 256>;  // [scale][value], 8 KiB

constexpr Table make_table() {
  Table table{};
  for (unsigned scale = 0; scale < 256; ++scale)
    for (unsigned value = 0; value < 16; ++value)
      table[scale][value] = mxfp4_to_bf16(value, scale);
  return table;
}
constexpr Table kTable = make_table();

bool finite(const uint16_t* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if ((values[i] & 0x7f80u) == 0x7f80u) return false;
  return true;
}

}  // namespace

std::optional<int64_t> decode_mxfp4(const std::byte* blocks, const std::byte* scales, int64_t count,
                                    uint16_t* out) {
  std::optional<int64_t> bad;
  for (int64_t block = 0; block < count; ++block, blocks += kMxfp4BlockBytes, out += kMxfp4BlockValues) {
    const auto scale = static_cast<unsigned>(scales[block]);
    const auto& row = kTable[scale];
    for (int64_t i = 0; i < kMxfp4BlockBytes; ++i) {
      const auto byte = static_cast<unsigned>(blocks[i]);
      out[2 * i] = row[byte & 15u];
      out[2 * i + 1] = row[byte >> 4];
    }
    if (scales[block] >= kMxfp4FirstOverflow && !bad && (scale == 255 || !finite(out, kMxfp4BlockValues)))
      bad = block;
  }
  return bad;
}

}  // namespace fovea
