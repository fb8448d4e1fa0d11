#pragma once
// The metrics of /metrics (Prometheus text format 0.0.4): vLLM's names, so that its dashboards work, and
// Fovea's own for the attention layer. Request metrics are counted by the service; engine metrics are read at
// each scrape.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "fovea/embed.h"
#include "fovea/engine.h"
#include "server/http/server.h"

namespace fovea::server {

inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

/// The statistics of a request whose last answer has ended.
struct RequestRecord {
  int prompt_tokens = 0, cached_tokens = 0;
  int generation_tokens = 0;  ///< of all n answers
  int n = 1;
  std::optional<int> max_tokens;
  FinishReason finish = FinishReason::none;
  /// The first three are from RequestOutput; e2e is from the request's arrival to the end of its last answer.
  double queue_seconds = 0, prefill_seconds = 0, decode_seconds = 0, e2e_seconds = 0;
};

/// The limit that was exceeded: queue time, the server's request timeout, or the client's.
enum class Timeout : uint8_t { queue, server, client };

class Metrics {
 public:
  virtual ~Metrics() = default;
  /// `served_name` is the label model_name of every series. `floor`: the machine's peak rates, to compare
  /// attention time with; nullopt = unknown: metrics relative to it are omitted.
  static std::unique_ptr<Metrics> create(const EngineInfo& info, std::string_view served_name,
                                         const std::optional<MachineFloor>& floor);
  static std::unique_ptr<Metrics> create(const EmbedInfo& info, std::string_view served_name);

  // Thread-safe and cheap: called for each token.
  virtual void first_token(double seconds_since_arrival) = 0;
  virtual void next_token(double seconds_since_last) = 0;
  virtual void finished(const RequestRecord& record) = 0;
  virtual void timed_out(Timeout which) = 0;
  virtual void refused(int status) = 0;        ///< a request that got an error before it reached the engine
  virtual void http_response(int status) = 0;  ///< every answer

  /// `stats` null = no engine, an embedder.
  virtual std::string text(const EngineStats* stats, const http::ConnectionCounts& connections) const = 0;
  std::string text(const Engine& engine, const http::ConnectionCounts& connections) const {
    const EngineStats stats = engine.stats();
    return text(&stats, connections);
  }
};

}  // namespace fovea::server
