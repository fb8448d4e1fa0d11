#include "engine/graph_buckets.h"

#include <algorithm>
#include <string>

#include "fovea/result.h"

namespace fovea {
namespace {

constexpr int kMaxRows = 256;
/// With drafts there is a graph for each number of rows up to this: a step of all sequences that may run
/// can't be filled up.
constexpr int kExactRows = 16;

Status check(const char* flag, int rows, int most, int drafts) {
  if (rows >= 1 && rows <= most) return {};
  return invalid(std::string(flag) + " " + std::to_string(rows) + ": a step decodes 1 to " +
                 std::to_string(most) + (drafts > 0 ? " rows" : " requests") +
                 "; give a number in this range, or change --max-running-requests");
}

}  // namespace

Result<std::vector<int>> graph_buckets(const GraphConfig& config, int max_seqs, int most_drafts) {
  if (config.max_rows && *config.max_rows < 1)
    return invalid("--cuda-graph-max-bs " + std::to_string(*config.max_rows) +
                   ": it must be 1 or more; --disable-cuda-graph captures no graphs");
  const int max_rows = max_seqs * (1 + most_drafts);
  for (const int rows : config.rows)
    FOVEA_RETURN_IF_ERROR(check("--cuda-graph-bs", rows, max_rows, most_drafts));
  if (!config.enabled) return std::vector<int>();
  const int most = std::min(config.max_rows.value_or(kMaxRows), max_rows);
  std::vector<int> buckets;
  if (config.rows.empty()) {
    for (int rows = 1; rows < most; ++rows)
      if (rows % 8 == 0 || 4 % rows == 0 || (most_drafts > 0 && rows <= kExactRows)) buckets.push_back(rows);
    buckets.push_back(most);  // so that no decode step up to it is without a graph
  } else {
    std::ranges::copy_if(config.rows, std::back_inserter(buckets),
                         [&](int rows) { return !config.max_rows || rows <= *config.max_rows; });
    std::ranges::sort(buckets);
    buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
  }
  return buckets;
}

int bucket_for(std::span<const int> buckets, int rows) {
  const auto at = std::ranges::lower_bound(buckets, rows);
  return at == buckets.end() ? 0 : *at;
}

}  // namespace fovea
