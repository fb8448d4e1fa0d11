#pragma once
#include <cstdint>
#include <functional>

namespace fovea {

/// Called on the loading thread while a model is loaded: bytes of weights read so far, and in total. `read`
/// never decreases and reaches `total` at the end.
using LoadProgress = std::function<void(int64_t read, int64_t total)>;

}  // namespace fovea
