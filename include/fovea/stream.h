#pragma once
// Where work runs, for programs that call backends themselves.
#include <memory>

#include "fovea/result.h"

namespace fovea {

class Stream;

/// A CPU stream with a thread team of its own: `threads` in all, the caller's included; 0 = one per CPU that
/// this process may use. Calls on it are synchronous. One thread may use it at a time.
Result<std::shared_ptr<Stream>> make_cpu_stream(int threads = 0);

}  // namespace fovea
