#pragma once
// For how many rows decode steps are captured: a step runs in the smallest graph that holds it.
#include <optional>
#include <span>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea {

struct GraphConfig {
  bool enabled = true;
  std::optional<int> max_rows;  ///< the largest graph; nullopt = 256
  std::vector<int> rows;        ///< the graphs' rows; empty = 1, 2, 4, 8, 16, 24, 32, ...
};

/// Ascending and distinct; empty = no graphs. `max_seqs`: sequences of the largest decode step, each of which
/// may have `most_drafts` rows more. Errors name the flag.
Result<std::vector<int>> graph_buckets(const GraphConfig& config, int max_seqs, int most_drafts = 0);

/// The smallest bucket of at least `rows` rows; 0 = none.
int bucket_for(std::span<const int> buckets, int rows);

/// How many of them, the first ones, are captured before the first request.
inline constexpr size_t kFirstBuckets = 4;

}  // namespace fovea
