#include "server/deadlines.h"

#include <charconv>
#include <cmath>
#include <sstream>
#include <string>

#include "server/service.h"
#include "server/text.h"

namespace fovea::server {
namespace {

constexpr double kMostSeconds = 86400;
constexpr size_t kShown = 40;

std::string seconds(std::chrono::milliseconds time) {
  std::ostringstream out;
  out << static_cast<double>(time.count()) / 1e3 << " s";
  return out.str();
}

}  // namespace

std::optional<Timeout> Deadlines::ran_out(std::chrono::nanoseconds taken, bool started) const {
  if (request.count() > 0 && taken >= request) return from_client ? Timeout::client : Timeout::server;
  if (queue.count() > 0 && !started && taken >= queue) return Timeout::queue;
  return std::nullopt;
}

openai::ApiError Deadlines::error(Timeout which) const {
  if (which == Timeout::queue)
    return {503, "the request exceeded the queue timeout of " + seconds(queue) + "; try again later", "",
            "queue_timeout", 1};
  const std::string whose =
      which == Timeout::client ? " that its X-Request-Timeout allows" : " that this server allows";
  return {504,
          "the request was not finished after the " + seconds(request) + whose +
              "; ask for fewer tokens or answers, or allow more time",
          "", which == Timeout::client ? "client_timeout" : "request_timeout"};
}

openai::ApiResult<Deadlines> Deadlines::of(const ServiceConfig& config, std::string_view header) {
  Deadlines out{config.queue_timeout, config.request_timeout, false};
  const std::string_view given = trimmed(header);
  if (given.empty()) return out;
  double value = 0;
  const auto end = std::from_chars(given.data(), given.data() + given.size(), value);
  if (end.ec != std::errc() || end.ptr != given.data() + given.size() || !(value > 0) || value > kMostSeconds)
    return openai::bad_request("X-Request-Timeout is " + std::string(given.substr(0, kShown)) +
                                   "; it must be a number of seconds above 0, at most 86400",
                               "X-Request-Timeout");
  const std::chrono::milliseconds time(static_cast<int64_t>(std::ceil(value * 1e3)));
  if (out.request.count() == 0 || time < out.request) {
    out.request = time;
    out.from_client = true;
  }
  return out;
}

}  // namespace fovea::server
