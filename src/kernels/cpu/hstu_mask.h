#pragma once
// The keys that a row of HSTU attention sees, as one range besides itself. fovea/linear_attention.h has the
// mask: ids do not decrease with the row, so that conditions on id(j) are ranges of j.
#include <cstdint>

#include "base/host_device.h"

namespace fovea {

struct HstuMask {
  int64_t keys = 0;     ///< n of the sequence
  int64_t targets = 0;  ///< t
  int contextual = 0, max_attn_len = 0, min_full = 0;
  bool has_targets = false;
};

struct HstuRange {
  int64_t begin = 0, end = 0;  ///< the row sees these keys, and itself
};

namespace hstu_detail {

FOVEA_HOST_DEVICE constexpr int64_t at_least(int64_t x, int64_t low) {
  return x < low ? low : x;
}
FOVEA_HOST_DEVICE constexpr int64_t at_most(int64_t x, int64_t high) {
  return x > high ? high : x;
}
/// M of the sequence.
FOVEA_HOST_DEVICE constexpr int64_t last_id(const HstuMask& m) {
  const int64_t ids = m.contextual > 0 ? m.keys - m.contextual + 1 : m.keys;
  return at_least(ids - (m.has_targets ? m.targets : 0), 0);
}
FOVEA_HOST_DEVICE constexpr int64_t id_of(const HstuMask& m, int64_t last, int64_t i) {
  const int64_t id = m.contextual > 0 ? at_least(i - m.contextual + 1, 0) : i;
  return m.has_targets ? at_most(id, last) : id;
}
/// The first key whose id is `id` or more.
FOVEA_HOST_DEVICE constexpr int64_t first_of(const HstuMask& m, int64_t last, int64_t id) {
  if (id <= 0) return 0;
  if (m.has_targets && id > last) return m.keys;
  return at_most(m.contextual > 0 ? id + m.contextual - 1 : id, m.keys);
}

}  // namespace hstu_detail

FOVEA_HOST_DEVICE constexpr HstuRange hstu_range(const HstuMask& m, int64_t i) {
  using namespace hstu_detail;
  const int64_t last = last_id(m), id = id_of(m, last, i);
  if (m.contextual > 0 && id == 0) return {0, first_of(m, last, last)};
  HstuRange range{0, first_of(m, last, id)};
  const bool full = m.min_full > 0 && id >= last - m.min_full;
  if (m.max_attn_len > 0 && !full) range.begin = first_of(m, last, id - m.max_attn_len);
  if (range.end == i) range.end = i + 1;  // one range with the row itself
  return range;
}

}  // namespace fovea
