#pragma once
#include <cstdint>
#include <functional>

namespace fovea {

/// Called while a model is loaded, on the thread that loads it: bytes of its weights that are read, of all
/// there are. Only grows, and ends with both the same.
using LoadProgress = std::function<void(int64_t read, int64_t total)>;

}  // namespace fovea
