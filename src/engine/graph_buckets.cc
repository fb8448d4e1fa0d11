#include "engine/graph_buckets.h"

#include <algorithm>
#include <string>

#include "fovea/result.h"

namespace fovea {
namespace {

constexpr int kMaxRows = 256;

Status check(const char* flag, int rows, int most) {
  if (rows >= 1 && rows <= most) return {};
  return invalid(std::string(flag) + " " + std::to_string(rows) + ": a step decodes 1 to " +
                 std::to_string(most) +
                 " requests; give a number in this range, or change "
                 "--max-running-requests");
}

}  // namespace

Result<std::vector<int>> graph_buckets(const GraphConfig& config, int max_seqs) {
  if (config.max_rows && *config.max_rows < 1)
    return invalid("--cuda-graph-max-bs " + std::to_string(*config.max_rows) +
                   ": it must be 1 or more; --disable-cuda-graph captures no graphs");
  for (const int rows : config.rows)
    FOVEA_RETURN_IF_ERROR(check("--cuda-graph-bs", rows, max_seqs));
  if (!config.enabled) return std::vector<int>();
  const int most = std::min(config.max_rows.value_or(kMaxRows), max_seqs);
  std::vector<int> buckets;
  if (config.rows.empty()) {
    for (const int rows : {1, 2, 4})
      if (rows < most) buckets.push_back(rows);
    for (int rows = 8; rows < most; rows += 8)
      buckets.push_back(rows);
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
