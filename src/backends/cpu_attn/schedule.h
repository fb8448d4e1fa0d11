#pragma once
// Divides a step into items for the CPU attention kernels. The division does not change a bit of a result:
// tiles and splits are placed by kernels/cpu/attn_policy.h, independent of the item that computes them.
#include <cstdint>
#include <vector>

#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"
#include "kernels/cpu/attn_params.h"

namespace fovea {

struct AttentionSchedule {
  std::vector<attn::Sequence> seqs;     // [B]
  std::vector<attn::RowKeys> row_keys;  // [Tq]
  std::vector<attn::Item> items;        // most expensive first
  std::vector<attn::CombineItem> combines;
  int64_t partial_records = 0;  // used by split items; <= max_partial_records
  int64_t tile_rows = 0;  // tiles times packed rows, over all items; a step's time is proportional to it
};

/// Divides a checked step for `threads` threads. A sequence with few rows is split over its keys when there
/// are too few items to keep all threads busy, as far as `max_partial_records` allows.
AttentionSchedule make_schedule(const AttentionSpec& spec, const BatchMeta& meta, int threads,
                                int64_t max_partial_records);

/// The most partial records that any step within `limits` can use; bounded by kMaxPartialBytes.
int64_t max_partial_records(const AttentionSpec& spec, const AttentionLimits& limits);

}  // namespace fovea
