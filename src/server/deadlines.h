#pragma once
// Queue and request timeouts, and the errors for them.
#include <chrono>
#include <optional>
#include <string_view>

#include "server/metrics.h"
#include "server/openai/error.h"

namespace fovea::server {

struct ServiceConfig;

/// Measured from the request's arrival; 0 = no limit.
struct Deadlines {
  std::chrono::milliseconds queue{0};    ///< to its first step
  std::chrono::milliseconds request{0};  ///< to the end of its answer
  bool from_client = false;              ///< `request` is the client's limit, which is below the server's

  /// The limit that is exceeded after `taken`, if any.
  std::optional<Timeout> ran_out(std::chrono::nanoseconds taken, bool started) const;
  /// 503 for the queue, 504 for the request; the code names the limit.
  openai::ApiError error(Timeout which) const;

  /// The lesser of the server's limit and X-Request-Timeout (`header`, in seconds; "" = none).
  static openai::ApiResult<Deadlines> of(const ServiceConfig& config, std::string_view header);
};

}  // namespace fovea::server
