#pragma once
// Range checks for engine and embedder settings.
#include <cstdint>
#include <string>

#include "fovea/result.h"

namespace fovea {

inline constexpr int kMaxThreads = 1024, kMaxBatchedTokens = 1 << 20;

/// "NAME is VALUE; it must be LOW to HIGH"
inline Status check_range(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return invalid(std::string(name) + " is " + std::to_string(value) + "; it must be " + std::to_string(low) +
                 " to " + std::to_string(high));
}

}  // namespace fovea
