#include "server/metrics.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <utility>

#include "server/metrics_engine.h"
#include "server/metrics_histogram.h"
#include "server/metrics_text.h"

namespace fovea::server {
namespace {

// vLLM's buckets, so that its dashboards' queries by `le` work, and finer ones at the low end for small
// models.
const std::vector<double> kFirstTokenBounds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                               0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                               20,    40,    80,   160,  640,  2560};
const std::vector<double> kTokenBounds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075,
                                          0.1,    0.15,  0.2,    0.3,   0.4,  0.5,   0.75, 1,
                                          2.5,    5,     7.5,    10,    20,   40,    80};
const std::vector<double> kRequestBounds = {0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.3, 0.5,  0.8,
                                            1,     1.5,   2,    2.5,   5,    10,  15,  20,   30,
                                            40,    50,    60,   120,   240,  480, 960, 1920, 7680};

/// 1, 2, 5, 10, 20, 50, ... up to `most`.
std::vector<double> token_bounds(int most) {
  std::vector<double> bounds;
  for (double power = 1;; power *= 10)
    for (const double digit : {1.0, 2.0, 5.0}) {
      if (digit * power > most && !bounds.empty()) return bounds;
      bounds.push_back(digit * power);
    }
}

/// A counter for each HTTP status.
class StatusCounts {
 public:
  void add(int status) {
    const int at = status >= kFirst && status < kFirst + kStatuses ? status - kFirst : kStatuses;
    counts_[static_cast<size_t>(at)].fetch_add(1, std::memory_order_relaxed);
  }
  /// Writes only statuses that occurred: at most 501 series.
  void write(std::string_view name, std::string_view help, MetricsText& out) const {
    out.metric(name, "counter", help);
    for (size_t i = 0; i < counts_.size(); ++i)
      if (const int64_t count = counts_[i].load(std::memory_order_relaxed); count > 0)
        out.sample(static_cast<double>(count),
                   {{"status", i < kStatuses ? std::to_string(kFirst + static_cast<int>(i)) : "other"}});
  }

 private:
  static constexpr int kFirst = 100, kStatuses = 500;
  std::array<std::atomic<int64_t>, kStatuses + 1> counts_{};
};

enum Finish { kStop, kLength, kAbort, kError, kFinishes };
// vLLM's labels.
constexpr std::array<std::string_view, kFinishes> kFinishNames = {"stop", "length", "abort", "error"};

Finish finish_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop: return kStop;
    case FinishReason::length: return kLength;
    case FinishReason::cancelled: return kAbort;
    case FinishReason::none:
    case FinishReason::error: break;
  }
  return kError;
}

class MetricsImpl final : public Metrics {
 public:
  /// `constants`: the text of metrics that never change.
  MetricsImpl(std::string_view served_name, int max_seq_len, const std::optional<MachineFloor>& floor,
              std::string constants)
      : served_name_(served_name),
        constants_(std::move(constants)),
        floor_(floor),
        prompt_tokens_(token_bounds(max_seq_len)),
        generation_tokens_(token_bounds(max_seq_len)),
        max_tokens_(token_bounds(max_seq_len)) {}

  void first_token(double seconds) override { first_token_.add(seconds); }
  void next_token(double seconds) override { next_token_.add(seconds); }
  void finished(const RequestRecord& record) override;
  void timed_out(Timeout which) override {
    timeouts_[static_cast<size_t>(which)].fetch_add(1, std::memory_order_relaxed);
  }
  void refused(int status) override { refused_.add(status); }
  void http_response(int status) override { responses_.add(status); }
  std::string text(const EngineStats* stats, const http::ConnectionCounts& connections) const override;

 private:
  void write_requests(MetricsText& out) const;

  std::string served_name_, constants_;
  const std::optional<MachineFloor> floor_;
  std::array<std::atomic<int64_t>, kFinishes> finishes_{};
  std::array<std::atomic<int64_t>, 3> timeouts_{};
  std::atomic<int64_t> prompt_total_{0}, cached_total_{0};
  StatusCounts refused_, responses_;
  MetricsHistogram first_token_{kFirstTokenBounds}, next_token_{kTokenBounds}, per_token_{kTokenBounds};
  MetricsHistogram e2e_{kRequestBounds}, queue_{kRequestBounds}, inference_{kRequestBounds},
      prefill_{kRequestBounds}, decode_{kRequestBounds};
  MetricsHistogram prompt_tokens_, generation_tokens_, max_tokens_;
  MetricsHistogram n_{{1, 2, 5, 10, 20}};
};

void MetricsImpl::finished(const RequestRecord& r) {
  finishes_[finish_of(r.finish)].fetch_add(1, std::memory_order_relaxed);
  prompt_total_.fetch_add(r.prompt_tokens, std::memory_order_relaxed);
  cached_total_.fetch_add(r.cached_tokens, std::memory_order_relaxed);
  prompt_tokens_.add(r.prompt_tokens);
  generation_tokens_.add(r.generation_tokens);
  n_.add(r.n);
  if (r.max_tokens) max_tokens_.add(*r.max_tokens);
  e2e_.add(r.e2e_seconds);
  queue_.add(r.queue_seconds);
  prefill_.add(r.prefill_seconds);
  decode_.add(r.decode_seconds);
  inference_.add(r.prefill_seconds + r.decode_seconds);
  // The answers are generated in parallel; the prefill produces the first token of each.
  const double gaps = static_cast<double>(r.generation_tokens) / std::max(1, r.n) - 1;
  per_token_.add(gaps > 0 ? r.decode_seconds / gaps : 0);
}

void MetricsImpl::write_requests(MetricsText& out) const {
  out.metric("vllm:request_success_total", "counter", "Requests by the reason that ended them.");
  for (size_t i = 0; i < finishes_.size(); ++i)
    out.sample(static_cast<double>(finishes_[i].load(std::memory_order_relaxed)),
               {{"finished_reason", kFinishNames[i]}});
  out.metric("fovea_request_timeouts_total", "counter", "Requests ended by a timeout.");
  constexpr std::array<std::string_view, 3> kTimeouts = {"queue", "server", "client"};
  for (size_t i = 0; i < timeouts_.size(); ++i)
    out.sample(static_cast<double>(timeouts_[i].load(std::memory_order_relaxed)), {{"limit", kTimeouts[i]}});
  out.counter("fovea_cached_prompt_tokens_total",
              "Prompt tokens of ended requests found in the prefix cache.",
              static_cast<double>(cached_total_.load(std::memory_order_relaxed)));
  prompt_tokens_.write("vllm:request_prompt_tokens", "Prompt tokens of a request.", out);
  generation_tokens_.write("vllm:request_generation_tokens", "Tokens generated for a request.", out);
  n_.write("vllm:request_params_n", "Number of answers requested (n).", out);
  max_tokens_.write("vllm:request_params_max_tokens", "max_tokens of requests that give it.", out);
  first_token_.write("vllm:time_to_first_token_seconds", "From a request's arrival to its first token.", out);
  next_token_.write("vllm:inter_token_latency_seconds", "From one token of an answer to the next.", out);
  per_token_.write("vllm:request_time_per_output_token_seconds",
                   "A request's mean time a token, without the first.", out);
  e2e_.write("vllm:e2e_request_latency_seconds", "From a request's arrival to its end.", out);
  queue_.write("vllm:request_queue_time_seconds", "Time in the queue.", out);
  inference_.write("vllm:request_inference_time_seconds", "From the first step to the end.", out);
  prefill_.write("vllm:request_prefill_time_seconds", "From the first step to the first token.", out);
  decode_.write("vllm:request_decode_time_seconds", "From the first token to the end.", out);
}

std::string MetricsImpl::text(const EngineStats* stats, const http::ConnectionCounts& connections) const {
  MetricsText out(served_name_);
  if (stats)
    write_engine_stats(*stats, floor_, out);
  else
    out.counter("vllm:prompt_tokens_total", "Tokens of texts.",
                static_cast<double>(prompt_total_.load(std::memory_order_relaxed)));
  write_requests(out);
  out.gauge("fovea_http_connections", "Connections that are open.", connections.open);
  out.counter("fovea_http_connections_refused_total", "Connections refused at the connection limit.",
              static_cast<double>(connections.refused));
  out.counter("fovea_http_connections_evicted_total", "Idle connections closed for new ones.",
              static_cast<double>(connections.evicted));
  responses_.write("fovea_http_responses_total", "HTTP answers by status.", out);
  refused_.write("fovea_requests_refused_total",
                 "Requests answered with an error before they reached the engine.", out);
  return constants_ + out.take();
}

}  // namespace

std::unique_ptr<Metrics> Metrics::create(const EngineInfo& info, std::string_view served_name,
                                         const std::optional<MachineFloor>& floor) {
  MetricsText constants(served_name);
  write_cache_config(info, constants);
  write_backends(info.selection, constants);
  return std::make_unique<MetricsImpl>(served_name, info.max_seq_len, floor, constants.take());
}

std::unique_ptr<Metrics> Metrics::create(const EmbedInfo& info, std::string_view served_name) {
  MetricsText constants(served_name);
  write_backends(info.selection, constants);
  return std::make_unique<MetricsImpl>(served_name, info.max_seq_len, std::nullopt, constants.take());
}

}  // namespace fovea::server
