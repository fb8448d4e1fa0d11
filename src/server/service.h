#pragma once
// The service between HTTP exchanges and an engine (or an embedder): routes, admission, streams and shutdown.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "audio/log_mel.h"
#include "audio/whisper.h"
#include "fovea/embed.h"
#include "fovea/engine.h"
#include "server/host_rule.h"
#include "server/http/server.h"
#include "server/openai/field_table.h"

namespace fovea::server {

/// Settings for an encoder-decoder model.
struct TextEncoder {
  std::vector<int32_t> decoder_prompt;  ///< the tokens that each answer begins with
  size_t longest = 0;                   ///< maximum number of encoder tokens
};

/// Settings for a model with audio input (Whisper).
struct AudioInput {
  LogMelConfig input;
  WhisperTokens tokens;
  int steps = 0;                        ///< positions of the encoder's output for one window
  std::vector<int32_t> decoder_prompt;  ///< of a model without Whisper's tokens

  int64_t frames_a_step() const { return input.frames() / steps; }
  double frame_seconds() const { return static_cast<double>(input.hop_length) / input.sample_rate; }
  double step_seconds() const { return static_cast<double>(frames_a_step()) * frame_seconds(); }
};

struct ServiceConfig {
  std::vector<std::string> served_names;  ///< answers name the first
  std::vector<std::string> api_keys;      ///< none = open
  std::vector<std::string> cors_origins;  ///< none = no CORS headers; "*" = any
  HostRule hosts;                         ///< other Host headers get 403 on every path
  int max_logprobs = 20;
  int max_running_requests = 64;   ///< maximum running answers, as the engine's (embedder: `workers`)
  int max_queued_requests = 1024;  ///< waiting answers, or embedding requests; beyond: 503
  int64_t max_queued_tokens = 0;   ///< prompt tokens that wait; 0 = no limit
  std::chrono::milliseconds request_timeout{0};  ///< from a request's arrival to its answer's end; 0 = none
  std::chrono::milliseconds queue_timeout{0};    ///< from a request's arrival to its first step; 0 = none
  int64_t max_answer_bytes = int64_t{64} << 20;  ///< estimate for one answer; 16 times that for all
  int workers = 2;                               ///< threads that parse large bodies and compute embeddings
  std::chrono::milliseconds sse_ping{15'000};    ///< silence before a stream sends an SSE comment
  std::string version;                           ///< reported by /version
  std::string server_info;                       ///< JSON, the constant part: backends and why
  bool playground = true;
  bool lora_updates = false;  ///< clients may load and unload LoRA adapters
  /// How the model writes tool calls and reasoning: "auto" = as its chat template shows, "none", or a name.
  std::string tool_call_parser = "auto", reasoning_parser = "auto";
  std::string template_kwargs;  ///< JSON object: variables of the chat template that a request does not set
  /// Answers of one choice report how their drafts fared, with `draft_positions` also by place.
  bool draft_metrics = false, draft_positions = false;
  openai::UnknownFields unknown_fields = openai::UnknownFields::refused;
  std::optional<TextEncoder> encoder;
  std::optional<AudioInput> audio;                      ///< not with `encoder`
  std::function<http::ConnectionCounts()> connections;  ///< for /metrics and /server_info; null = none
};

class Service {
 public:
  virtual ~Service() = default;
  /// Exactly one of `engine` and `embedder` is not null. It must outlive the service, and the service must
  /// outlive the server whose exchanges it gets. API keys that cannot be sent in a header are an error.
  static Result<std::unique_ptr<Service>> create(const ServiceConfig& config, Engine* engine,
                                                 Embedder* embedder);

  virtual http::Handler handler() = 0;
  virtual http::ErrorPage error_page() = 0;
  /// From now on /health answers 200.
  virtual void set_ready() = 0;
  /// New requests get 503; returns at once.
  virtual void drain() = 0;
  /// The number of requests not fully answered yet.
  virtual int in_flight() const = 0;
  /// Cancels the remaining requests; streams get an error event.
  virtual void abort_all() = 0;
};

}  // namespace fovea::server
