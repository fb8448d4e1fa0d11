#pragma once
// Figures of a run, defined as `vllm bench serve` defines them.
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/result.h"
#include "load/outcome.h"

namespace fovea::load {

enum class Metric { ttft, tpot, itl, e2el };
inline constexpr std::array kMetrics = {Metric::ttft, Metric::tpot, Metric::itl, Metric::e2el};
std::string_view to_string(Metric metric);  ///< "ttft"
/// Comma-separated names, or an error that says what is allowed.
Result<std::vector<Metric>> parse_metrics(std::string_view names);
/// Comma-separated numbers of 0 to 100.
Result<std::vector<double>> parse_percentiles(std::string_view numbers);

/// Milliseconds within which a request is good; those not set don't count.
struct Goodput {
  std::optional<double> ttft_ms, tpot_ms, e2el_ms;
  bool any() const { return ttft_ms || tpot_ms || e2el_ms; }
};
/// Each "ttft:MS", "tpot:MS" or "e2el:MS".
Result<Goodput> parse_goodput(const std::vector<std::string>& pairs);

/// Between the two nearest values in proportion (numpy's default). 0 of none. `sorted` ascending.
double percentile(std::span<const double> sorted, double percent);

struct Distribution {
  std::vector<double> sorted_ms;
  double mean_ms = 0, median_ms = 0, std_ms = 0;  ///< the deviation of the population
  double at(double percent) const { return percentile(sorted_ms, percent); }
};
Distribution distribution(std::vector<double> seconds);

struct Summary {
  double duration_s = 0;
  int64_t completed = 0, failed = 0, unfinished = 0;
  int64_t total_input = 0, total_output = 0;                                   ///< of completed requests
  double request_throughput = 0, output_throughput = 0, total_throughput = 0;  ///< a second
  double goodput = 0;                                                          ///< good requests a second
  double peak_output_throughput = 0;  ///< the most events with tokens in one second of the run
  int64_t peak_concurrency = 0;       ///< of completed requests
  std::array<Distribution, kMetrics.size()> metrics;

  const Distribution& of(Metric metric) const { return metrics[static_cast<size_t>(metric)]; }
};

/// Seconds a token after the first; 0 for an answer of one token, which counts for goodput only.
double time_per_output_token(const Outcome& outcome);
Summary summarize(std::span<const Outcome> outcomes, double duration_s, const Goodput& goodput);

/// Events with tokens in each slice of `slice_s` seconds, and the requests that were under way at its middle;
/// of all requests that got tokens.
struct Timeline {
  double slice_s = 1;
  std::vector<double> tokens_per_second, concurrency;
};
Timeline timeline(std::span<const Outcome> outcomes, double duration_s, double slice_s);

}  // namespace fovea::load
