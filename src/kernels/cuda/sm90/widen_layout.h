#pragma once
// The space of a prefill over an 8-bit or an x-packed cache: the keys and values that its sequences see, in
// the queries' type, and the work items that refer to them. Host code, without CUDA.
#include <cstddef>
#include <cstdint>

#include "fovea/attention_step.h"
#include "kernels/cuda/common/kernel_info.h"

namespace fovea::cuda::sm90 {

/// What the sequence's items see: keys [low, past), of which [key_low, n_k) are
/// read; the others become zeros.
struct WidenSequence {
  int64_t pages;         ///< WorkItem::pages
  int32_t low, past;     ///< multiples of the tile's keys
  int32_t key_low, n_k;  ///< as in WorkItem
  int32_t first_block;   ///< counts the blocks of all sequences in front
};

/// Rows are widened in blocks of KernelInfo::tile_keys. Where the space for all rows of a step would be
/// large, the step is done in windows: sequences whose rows begin in one of them are widened and computed
/// before those of the next. A window has room for the rows of its last sequence.
struct WidenLayout {
  int max_seqs = 0;
  int64_t max_items = 0;
  int windows = 0;            ///< at most kMostWindows
  int64_t window_blocks = 0;  ///< blocks in which a window's sequences begin
  int64_t rows = 0;           ///< of K and V for each head
  /// Offsets in bytes. `items`: those of each window.
  size_t sequences = 0, window_ends = 0, window_items = 0, blocks = 0, items = 0, k_scales = 0, v_scales = 0,
         k = 0, v = 0;
  size_t bytes = 0;
};

/// Enough for all rows up to this size, for a quarter of a step's rows or for two of the longest sequence.
inline constexpr int kMostWindows = 4;
inline constexpr int64_t kMostWidenedBytes = int64_t{512} << 20;

/// Whether launch() first makes rows of the queries' type of the kernel's cache, of x-packed pages or not.
constexpr bool is_widened(const KernelInfo& kernel, bool x_packed) {
  return kernel.kind != KernelKind::decode && (kernel.kv != KvType::same || x_packed);
}

/// Rows are numbered in 32 bits.
inline constexpr int64_t kMostWidenedRows = int64_t{1} << 30;

/// For a kernel of an 8-bit or an x-packed cache; `max_items`: of the schedule.
WidenLayout widen_layout(const KernelInfo& kernel, int kv_heads, const AttentionLimits& limits,
                         int64_t max_items);

/// The layout and its memory on the device, aligned to 256 bytes.
struct WidenSpace {
  WidenLayout layout;
  char* memory = nullptr;
};

}  // namespace fovea::cuda::sm90
