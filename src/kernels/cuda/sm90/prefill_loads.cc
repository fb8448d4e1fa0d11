#include "kernels/cuda/sm90/prefill_loads.h"

#include <numeric>

#include "kernels/cuda/tiles/map_stride.h"

namespace fovea::cuda::sm90 {
namespace {

/// Whether a tensor map can express [page][head][slot] with these strides. The stride of a single page is
/// checked too, because the map does not contain the number of pages.
bool fits_map(const KvParams& kv, int64_t page, int64_t slot, int64_t head, int heads) {
  if (heads > 1 && !is_map_stride(head)) return false;
  if (kv.pages == nullptr) return kv.rows <= 1 || is_map_stride(page);
  return is_map_stride(page) && (kv.page_size.divisor <= 1 || is_map_stride(slot));
}

}  // namespace

int tma_box_keys(const KvParams& kv, int tile_keys, int heads) {
  constexpr int kMinBoxRows = 16;
  if (!fits_map(kv, kv.k_page_stride, kv.k_slot_stride, kv.k_head_stride, heads) ||
      !fits_map(kv, kv.v_page_stride, kv.v_slot_stride, kv.v_head_stride, heads))
    return 0;
  if (kv.pages == nullptr) return kv.rows > 0 ? tile_keys : 0;
  const int rows = std::gcd(static_cast<int>(kv.page_size.divisor), tile_keys);
  return rows >= kMinBoxRows ? rows : 0;
}

bool can_load_query_by_tma(const AttentionParams& p, int rows) {
  constexpr int kElementBytes = 2;
  const int group = static_cast<int>(p.group.divisor);
  const int heads = group * static_cast<int>(p.kv_heads.divisor);
  return rows % group == 0 && p.q_rows.block_gap == 0 && is_map_stride(p.q_rows.row_stride * kElementBytes) &&
         (heads == 1 || is_map_stride(int64_t{p.q_rows.head_stride} * kElementBytes));
}

}  // namespace fovea::cuda::sm90
