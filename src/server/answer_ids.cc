#include "server/answer_ids.h"

#include <chrono>
#include <random>
#include <string_view>

namespace fovea::server {

std::string random_id(std::string prefix, int digits) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  constexpr std::string_view kHex = "0123456789abcdef";
  for (int i = 0; i < digits; ++i)
    prefix += kHex[random() & 15];
  return prefix;
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace fovea::server
