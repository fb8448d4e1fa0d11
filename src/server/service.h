#pragma once
// Routes, admission, streams and the end of them: HTTP exchanges on one side, an engine (or an embedder) on
// the other.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fovea/embed.h"
#include "fovea/engine.h"
#include "server/host_rule.h"
#include "server/http/server.h"
#include "server/openai/field_table.h"

namespace fovea::server {

/// An encoder-decoder model that reads a text before it writes one.
struct TextEncoder {
  std::vector<int32_t> decoder_prompt;  ///< what answers begin with
  size_t longest = 0;                   ///< tokens that the encoder takes
};

struct ServiceConfig {
  std::vector<std::string> served_names;  ///< the first is the one in answers
  std::vector<std::string> api_keys;      ///< none = open
  std::vector<std::string> cors_origins;  ///< none = no CORS headers; "*" = any
  HostRule hosts;                         ///< other Host headers get 403, whatever they ask for
  int max_logprobs = 20;
  int max_running_requests =
      64;  ///< the engine's: so many answers do not wait for their turn (an embedder: `workers`)
  int max_queued_requests =
      1024;  ///< answers, or requests for embeddings, that wait for their turn; beyond: 503
  int64_t max_queued_tokens = 0;                 ///< of prompts that wait; 0 = no limit
  std::chrono::milliseconds request_timeout{0};  ///< from a request's arrival to its answer's end; 0 = none
  std::chrono::milliseconds queue_timeout{0};    ///< from there to its first step; 0 = none
  int64_t max_answer_bytes = int64_t{64}
                             << 20;            ///< of one answer, as it is estimated; 16 times as much of all
  int workers = 2;                             ///< threads that read large bodies, and embed
  std::chrono::milliseconds sse_ping{15'000};  ///< a comment in a stream that is silent so long
  std::string version;                         ///< of /version
  std::string server_info;                     ///< JSON of what does not change: backends and why
  bool playground = true;
  openai::UnknownFields unknown_fields = openai::UnknownFields::refused;
  std::optional<TextEncoder> encoder;
  std::function<http::ConnectionCounts()> connections;  ///< for /metrics and /server_info; null = none
};

class Service {
 public:
  virtual ~Service() = default;
  /// Exactly one of `engine` and `embedder` is not null; both must outlive the service, and the service the
  /// server whose exchanges it gets. Keys that no client could send are refused.
  static Result<std::unique_ptr<Service>> create(const ServiceConfig& config, Engine* engine,
                                                 Embedder* embedder);

  virtual http::Handler handler() = 0;
  virtual http::ErrorPage error_page() = 0;
  /// /health answers 200 from now on.
  virtual void set_ready() = 0;
  /// New requests get 503; returns at once.
  virtual void drain() = 0;
  /// Requests that are not answered yet.
  virtual int in_flight() const = 0;
  /// Cancels what is left; streams get an error event.
  virtual void abort_all() = 0;
};

}  // namespace fovea::server
