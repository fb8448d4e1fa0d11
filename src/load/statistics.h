#pragma once
// Metrics of a run, with the definitions of `vllm bench serve`.
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/result_fwd.h"
#include "load/outcome.h"

namespace fovea::load {

enum class Metric { ttft, tpot, itl, e2el };
inline constexpr std::array kMetrics = {Metric::ttft, Metric::tpot, Metric::itl, Metric::e2el};
std::string_view to_string(Metric metric);  ///< "ttft"
/// Comma-separated names; an error lists the allowed ones.
Result<std::vector<Metric>> parse_metrics(std::string_view names);
/// Comma-separated numbers from 0 to 100.
Result<std::vector<double>> parse_percentiles(std::string_view numbers);

/// Latency limits in milliseconds of a good request; unset limits are not applied.
struct Goodput {
  std::optional<double> ttft_ms, tpot_ms, e2el_ms;
  bool any() const { return ttft_ms || tpot_ms || e2el_ms; }
};
/// Each "ttft:MS", "tpot:MS" or "e2el:MS".
Result<Goodput> parse_goodput(const std::vector<std::string>& pairs);

/// Linear interpolation between the two nearest values (numpy's default); 0 if empty. `sorted` ascending.
double percentile(std::span<const double> sorted, double percent);

struct Distribution {
  std::vector<double> sorted_ms;
  double mean_ms = 0, median_ms = 0, std_ms = 0;  ///< population standard deviation
  double at(double percent) const { return percentile(sorted_ms, percent); }
};
Distribution distribution(std::vector<double> seconds);

struct Summary {
  double duration_s = 0;
  int64_t completed = 0, failed = 0, unfinished = 0;
  int64_t total_input = 0, total_output = 0;                                   ///< of completed requests
  double request_throughput = 0, output_throughput = 0, total_throughput = 0;  ///< per second
  double goodput = 0;                                                          ///< good requests per second
  double peak_output_throughput = 0;  ///< maximum events with tokens in one second of the run
  int64_t peak_concurrency = 0;       ///< of completed requests
  std::array<Distribution, kMetrics.size()> metrics;

  const Distribution& of(Metric metric) const { return metrics[static_cast<size_t>(metric)]; }
};

/// Seconds per token after the first; 0 for an answer of one token, which counts for goodput only.
double time_per_output_token(const Outcome& outcome);
Summary summarize(std::span<const Outcome> outcomes, double duration_s, const Goodput& goodput);

/// Events with tokens in each slice of `slice_s` seconds, and the requests in flight at its middle, over all
/// requests that received tokens.
struct Timeline {
  double slice_s = 1;
  std::vector<double> tokens_per_second, concurrency;
};
Timeline timeline(std::span<const Outcome> outcomes, double duration_s, double slice_s);

}  // namespace fovea::load
