#pragma once
// How long a request may wait and take, and what is said when that is over.
#include <chrono>
#include <optional>
#include <string_view>

#include "server/metrics.h"
#include "server/openai/error.h"

namespace fovea::server {

struct ServiceConfig;

/// From a request's arrival; 0 = no limit.
struct Deadlines {
  std::chrono::milliseconds queue{0};    ///< to its first step
  std::chrono::milliseconds request{0};  ///< to the end of its answer
  bool from_client = false;              ///< `request` is the client's, as it is less than the server's

  /// What is over after `taken`, if anything.
  std::optional<Timeout> ran_out(std::chrono::nanoseconds taken, bool started) const;
  /// 503 in line, 504 later: with a code that names the limit.
  openai::ApiError error(Timeout which) const;

  /// The server's, and X-Request-Timeout in `header` ("" = none), seconds: the lesser of the two counts.
  static openai::ApiResult<Deadlines> of(const ServiceConfig& config, std::string_view header);
};

}  // namespace fovea::server
