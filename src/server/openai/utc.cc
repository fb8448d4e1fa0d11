#include "server/openai/utc.h"

#include <ctime>

namespace fovea::openai {

std::string utc_time(int64_t seconds, int64_t nanoseconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[64];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::string fraction;
  if (nanoseconds > 0) {
    fraction = std::to_string(1'000'000'000 + nanoseconds);
    fraction[0] = '.';
  }
  return std::string(text, length) + fraction + "Z";
}

}  // namespace fovea::openai
