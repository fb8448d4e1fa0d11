#include "load/statistics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "fovea/result.h"

namespace fovea::load {
namespace {

std::vector<std::string_view> split(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t at = text.find(mark);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

/// Calls visit(seconds since the run began) for each event with a token.
template <class Visit>
void for_each_event(const Outcome& outcome, Visit&& visit) {
  if (outcome.ttft <= 0) return;
  double time = outcome.start + outcome.ttft;
  visit(time);
  for (const double gap : outcome.itl)
    visit(time += gap);
}

int64_t peak_concurrency(std::span<const Outcome> outcomes) {
  std::vector<std::pair<double, int>> changes;  // at equal times, ends sort before starts
  for (const Outcome& outcome : outcomes) {
    if (outcome.ending != Ending::success) continue;
    changes.emplace_back(outcome.start, 1);
    changes.emplace_back(outcome.start + outcome.latency, -1);
  }
  std::sort(changes.begin(), changes.end());
  int64_t now = 0, peak = 0;
  for (const auto& change : changes)
    peak = std::max(peak, now += change.second);
  return peak;
}

bool is_good(const Outcome& outcome, const Goodput& goodput) {
  const auto within = [](const std::optional<double>& limit_ms, double seconds) {
    return !limit_ms || seconds * 1e3 <= *limit_ms;
  };
  return within(goodput.ttft_ms, outcome.ttft) && within(goodput.tpot_ms, time_per_output_token(outcome)) &&
         within(goodput.e2el_ms, outcome.latency);
}

}  // namespace

std::string_view to_string(Metric metric) {
  constexpr std::array<std::string_view, kMetrics.size()> kNames = {"ttft", "tpot", "itl", "e2el"};
  return kNames[static_cast<size_t>(metric)];
}

Result<std::vector<Metric>> parse_metrics(std::string_view names) {
  std::vector<Metric> metrics;
  for (const std::string_view name : split(names, ',')) {
    const auto found = std::find_if(kMetrics.begin(), kMetrics.end(),
                                    [&](Metric metric) { return to_string(metric) == name; });
    if (found == kMetrics.end())
      return invalid("--percentile-metrics " + std::string(names) + ": \"" + std::string(name) +
                     "\" is not a metric; allowed are ttft, tpot, itl, e2el, separated by commas");
    metrics.push_back(*found);
  }
  return metrics;
}

Result<std::vector<double>> parse_percentiles(std::string_view numbers) {
  std::vector<double> percentiles;
  for (const std::string_view text : split(numbers, ',')) {
    const auto number = parse_number(text);
    if (!number || *number < 0 || *number > 100)
      return invalid("--metric-percentiles " + std::string(numbers) + ": \"" + std::string(text) +
                     "\" is not a percentile; allowed are numbers of 0 to 100, separated by commas");
    percentiles.push_back(*number);
  }
  return percentiles;
}

Result<Goodput> parse_goodput(const std::vector<std::string>& pairs) {
  Goodput goodput;
  for (const std::string& pair : pairs) {
    const size_t colon = std::min(pair.find(':'), pair.size());
    const std::string_view name = std::string_view(pair).substr(0, colon);
    const auto value = parse_number(std::string_view(pair).substr(std::min(colon + 1, pair.size())));
    std::optional<double>* limit = name == "ttft"   ? &goodput.ttft_ms
                                   : name == "tpot" ? &goodput.tpot_ms
                                   : name == "e2el" ? &goodput.e2el_ms
                                                    : nullptr;
    if (limit == nullptr || !value || *value < 0)
      return invalid("--goodput " + pair +
                     ": allowed are ttft:MS, tpot:MS and e2el:MS with milliseconds of 0 or more");
    *limit = value;
  }
  return goodput;
}

double percentile(std::span<const double> sorted, double percent) {
  if (sorted.empty()) return 0;
  const double place = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = std::min(static_cast<size_t>(place), sorted.size() - 1);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Distribution distribution(std::vector<double> seconds) {
  Distribution result;
  if (seconds.empty()) return result;
  for (double& value : seconds)
    value *= 1e3;
  std::sort(seconds.begin(), seconds.end());
  const auto count = static_cast<double>(seconds.size());
  result.mean_ms = std::accumulate(seconds.begin(), seconds.end(), 0.0) / count;
  double squares = 0;
  for (const double value : seconds)
    squares += (value - result.mean_ms) * (value - result.mean_ms);
  result.std_ms = std::sqrt(squares / count);
  result.sorted_ms = std::move(seconds);
  result.median_ms = result.at(50);
  return result;
}

double time_per_output_token(const Outcome& outcome) {
  if (outcome.output_tokens < 2) return 0;
  return (outcome.latency - outcome.ttft) / static_cast<double>(outcome.output_tokens - 1);
}

Summary summarize(std::span<const Outcome> outcomes, double duration_s, const Goodput& goodput) {
  Summary summary;
  summary.duration_s = duration_s;
  std::vector<double> ttft, tpot, itl, e2el;
  int64_t good = 0;
  for (const Outcome& outcome : outcomes) {
    if (outcome.ending == Ending::failure) ++summary.failed;
    if (outcome.ending == Ending::open) ++summary.unfinished;
    if (outcome.ending != Ending::success) continue;
    ++summary.completed;
    summary.total_input += outcome.prompt_tokens;
    summary.total_output += outcome.output_tokens;
    ttft.push_back(outcome.ttft);
    e2el.push_back(outcome.latency);
    itl.insert(itl.end(), outcome.itl.begin(), outcome.itl.end());
    if (outcome.output_tokens > 1) tpot.push_back(time_per_output_token(outcome));
    if (is_good(outcome, goodput)) ++good;
  }
  if (duration_s > 0) {
    summary.request_throughput = static_cast<double>(summary.completed) / duration_s;
    summary.goodput = static_cast<double>(good) / duration_s;
    summary.output_throughput = static_cast<double>(summary.total_output) / duration_s;
    summary.total_throughput = static_cast<double>(summary.total_input + summary.total_output) / duration_s;
  }
  const Timeline seconds = timeline(outcomes, duration_s, 1);
  for (const double rate : seconds.tokens_per_second)
    summary.peak_output_throughput = std::max(summary.peak_output_throughput, rate);
  summary.peak_concurrency = peak_concurrency(outcomes);
  summary.metrics = {distribution(std::move(ttft)), distribution(std::move(tpot)),
                     distribution(std::move(itl)), distribution(std::move(e2el))};
  return summary;
}

Timeline timeline(std::span<const Outcome> outcomes, double duration_s, double slice_s) {
  Timeline line;
  line.slice_s = slice_s;
  const auto slices = static_cast<size_t>(std::max(duration_s, 0.0) / slice_s) + 1;
  line.tokens_per_second.assign(slices, 0);
  line.concurrency.assign(slices, 0);
  std::vector<double> changes(slices + 1, 0);
  // The first slice whose middle is at or after `time`.
  const auto slice_after = [&](double time) {
    return std::min(static_cast<size_t>(std::max(std::ceil(time / slice_s - 0.5), 0.0)), slices);
  };
  for (const Outcome& outcome : outcomes) {
    if (outcome.ttft <= 0) continue;
    for_each_event(outcome, [&](double time) {
      const auto slice = static_cast<size_t>(std::max(time, 0.0) / slice_s);
      line.tokens_per_second[std::min(slice, slices - 1)] += 1 / slice_s;
    });
    changes[slice_after(outcome.start)] += 1;
    changes[slice_after(outcome.start + outcome.latency)] -= 1;
  }
  std::partial_sum(changes.begin(), changes.end() - 1, line.concurrency.begin());
  return line;
}

}  // namespace fovea::load
