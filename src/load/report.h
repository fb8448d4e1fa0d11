#pragma once
// Reports of a run in the form of `vllm bench serve`: the printed block and the JSON file.
#include <string>
#include <vector>

#include "load/bench.h"

namespace fovea::load {

struct ReportConfig {
  std::vector<Metric> metrics = {kMetrics.begin(), kMetrics.end()};
  std::vector<double> percentiles = {50, 90, 99};
  bool detailed = false;  ///< JSON: also each request's lengths, times, text and error
};

/// Lines of 50 columns, each terminated with '\n'.
std::string report_text(const BenchConfig& config, const BenchResult& result, const ReportConfig& report);
/// Up to `most` different errors, most frequent first, one per line; "" if nothing failed.
std::string report_errors(const BenchResult& result, size_t most);
/// `date`: of the run, as "20261122-054500".
std::string report_json(const BenchConfig& config, const BenchResult& result, const ReportConfig& report,
                        const std::string& date);
/// "openai-infqps-concurrency8-model-20261122-054500.json", with invalid file name characters replaced.
std::string report_file_name(const BenchConfig& config, const BenchResult& result, const std::string& date);

std::string_view to_string(Backend backend);  ///< "openai", "openai-chat"
std::string_view to_string(Dataset dataset);
/// "p99", "p99.9"
std::string percentile_name(double percent);

}  // namespace fovea::load
