#include "load/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

namespace fovea::load {
namespace {

constexpr size_t kWidth = 50, kLabelWidth = 40;

std::string centred(const std::string& title, char fill) {
  const size_t around = kWidth > title.size() ? kWidth - title.size() : 0;
  return std::string(around / 2, fill) + title + std::string(around - around / 2, fill) + "\n";
}

std::string padded(const std::string& label, const std::string& value) {
  std::string line = label;
  line.resize(std::max(label.size(), kLabelWidth), ' ');
  line += " " + value;
  line.resize(std::max(line.size(), kLabelWidth + 11), ' ');
  return line + "\n";
}

std::string row(const std::string& label, int64_t value) {
  return padded(label, std::to_string(value));
}

std::string row(const std::string& label, double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f", value);
  return padded(label, text);
}

struct MetricNames {
  std::string short_name, title;
};

MetricNames names_of(Metric metric) {
  switch (metric) {
    case Metric::ttft: return {"TTFT", "Time to First Token"};
    case Metric::tpot: return {"TPOT", "Time per Output Token (excl. 1st token)"};
    case Metric::itl: return {"ITL", "Inter-token Latency"};
    case Metric::e2el: break;
  }
  return {"E2EL", "End-to-end Latency"};
}

std::string metric_block(Metric metric, const Distribution& values, const std::vector<double>& percentiles) {
  const auto [name, title] = names_of(metric);
  std::string text = centred(title, '-');
  text += row("Mean " + name + " (ms):", values.mean_ms);
  text += row("Median " + name + " (ms):", values.median_ms);
  for (const double percent : percentiles) {
    std::string word = percentile_name(percent);
    word[0] = 'P';
    text += row(word + " " + name + " (ms):", values.at(percent));
  }
  return text;
}

/// As vLLM.
std::string drafts_block(const SpeculativeCounts& drafts) {
  const auto share = [](int64_t part, int64_t all) {
    return all > 0 ? 100 * static_cast<double>(part) / static_cast<double>(all) : 0;
  };
  std::string text = centred("Speculative Decoding", '-');
  text += row("Acceptance rate (%):", share(drafts.accepted_tokens, drafts.draft_tokens));
  text += row("Acceptance length:", drafts.mean_acceptance_length());
  text += row("Drafts:", drafts.drafts);
  text += row("Draft tokens:", drafts.draft_tokens);
  text += row("Accepted tokens:", drafts.accepted_tokens);
  text += "Per-position acceptance (%):\n";
  for (size_t i = 0; i < drafts.accepted_by_position.size(); ++i)
    text +=
        row("  Position " + std::to_string(i) + ":", share(drafts.accepted_by_position[i], drafts.drafts));
  return text;
}

}  // namespace

std::string_view to_string(Backend backend) {
  return backend == Backend::openai ? "openai" : "openai-chat";
}

std::string_view to_string(Dataset dataset) {
  switch (dataset) {
    case Dataset::random: return "random";
    case Dataset::sharegpt: return "sharegpt";
    case Dataset::prefix_repetition: break;
  }
  return "prefix_repetition";
}

std::string percentile_name(double percent) {
  char text[32];
  std::snprintf(text, sizeof text, "p%.12g", percent);
  return text;
}

std::string report_text(const BenchConfig& config, const BenchResult& result, const ReportConfig& report) {
  const Summary& summary = result.summary;
  std::string text = centred(" Serving Benchmark Result ", '=');
  text += row("Successful requests:", summary.completed);
  text += row("Failed requests:", summary.failed);
  if (summary.unfinished > 0) text += row("Requests cut off by the interrupt:", summary.unfinished);
  if (config.max_concurrency > 0)
    text += row("Maximum request concurrency:", int64_t{config.max_concurrency});
  if (std::isfinite(config.request_rate)) text += row("Request rate configured (RPS):", config.request_rate);
  text += row("Benchmark duration (s):", summary.duration_s);
  text += row("Total input tokens:", summary.total_input);
  text += row("Total generated tokens:", summary.total_output);
  text += row("Request throughput (req/s):", summary.request_throughput);
  if (config.goodput.any()) text += row("Request goodput (req/s):", summary.goodput);
  text += row("Output token throughput (tok/s):", summary.output_throughput);
  text += row("Peak output token throughput (tok/s):", summary.peak_output_throughput);
  text += row("Peak concurrent requests:", static_cast<double>(summary.peak_concurrency));
  text += row("Total Token throughput (tok/s):", summary.total_throughput);
  for (const Metric metric : report.metrics)
    text += metric_block(metric, summary.of(metric), report.percentiles);
  if (result.drafts) text += drafts_block(*result.drafts);
  return text + std::string(kWidth, '=') + "\n";
}

std::string report_errors(const BenchResult& result, size_t most) {
  std::map<std::string, int> counts;
  for (const Outcome& outcome : result.outcomes)
    if (outcome.ending == Ending::failure) ++counts[outcome.error];
  std::vector<std::pair<int, std::string>> ordered;
  for (const auto& [error, count] : counts)
    ordered.emplace_back(count, error);
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (size_t i = 0; i < std::min(most, ordered.size()); ++i)
    text += std::to_string(ordered[i].first) + " x " + ordered[i].second + "\n";
  if (ordered.size() > most) text += "and " + std::to_string(ordered.size() - most) + " other errors\n";
  return text;
}

std::string report_file_name(const BenchConfig& config, const BenchResult& result, const std::string& date) {
  char rate[64];
  std::snprintf(rate, sizeof rate, "%g", config.request_rate);
  std::string name = std::string(to_string(config.request.backend)) + "-" + rate + "qps";
  if (config.max_concurrency > 0) name += "-concurrency" + std::to_string(config.max_concurrency);
  const std::string model = result.model.substr(result.model.rfind('/') + 1);
  name += "-" + model.substr(0, 100) + "-" + date + ".json";
  for (char& c : name)
    if (static_cast<unsigned char>(c) <= ' ' || c == '/' || c == '\x7f') c = '_';
  return name;
}

}  // namespace fovea::load
