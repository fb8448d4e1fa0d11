#pragma once
// What /metrics says (Prometheus text format 0.0.4): vLLM's names, so that its dashboards work, and our own
// of the attention layer. Counted per request by the service, read from the engine at each scrape.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "fovea/engine.h"

namespace fovea::server {

/// What is known of a request when its last answer is over.
struct RequestRecord {
  int prompt_tokens = 0, cached_tokens = 0, generation_tokens = 0, n = 1;
  std::optional<int> max_tokens;
  FinishReason finish = FinishReason::none;
  double queue_seconds = 0, prefill_seconds = 0, decode_seconds = 0, e2e_seconds = 0;
};

class Metrics {
 public:
  virtual ~Metrics() = default;
  static std::unique_ptr<Metrics> create(const EngineInfo& info, std::string_view served_name);

  // Thread-safe and cheap: called for every token.
  virtual void first_token(double seconds_since_arrival) = 0;
  virtual void next_token(double seconds_since_last) = 0;
  virtual void finished(const RequestRecord& record) = 0;
  virtual void refused(int status) = 0;        ///< answered with an error before it reached the engine
  virtual void http_response(int status) = 0;  ///< every answer

  virtual std::string text(const Engine& engine, int http_connections) const = 0;
};

}  // namespace fovea::server
