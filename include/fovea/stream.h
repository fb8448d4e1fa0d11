#pragma once
// Streams on which work runs, for programs that call backends directly.
#include <memory>

#include "fovea/result.h"

namespace fovea {

class Stream;

/// A CPU stream with its own thread team: `threads` in total, including the caller; 0 = one per CPU that this
/// process may use. Calls on it are synchronous. One thread may use it at a time.
Result<std::shared_ptr<Stream>> make_cpu_stream(int threads = 0);

}  // namespace fovea
