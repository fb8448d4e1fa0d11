#include "device/stream.h"

#include <system_error>
#include <utility>

#include "base/thread_pool.h"
#include "fovea/stream.h"

namespace fovea {
namespace {

constexpr int kMaxThreads = 4096;

// The stream refers to the pool, so both live in one allocation.
struct OwnedStream {
  explicit OwnedStream(int threads) : pool(threads), stream(pool) {}
  ThreadPool pool;
  Stream stream;
};

}  // namespace

Result<std::shared_ptr<Stream>> make_cpu_stream(int threads) {
  if (threads < 0 || threads > kMaxThreads)
    return invalid("threads: " + std::to_string(threads) + " given, 0 (one per CPU) to " +
                   std::to_string(kMaxThreads) + " allowed");
  try {
    auto owned = std::make_shared<OwnedStream>(threads);
    return std::shared_ptr<Stream>(owned, &owned->stream);
  } catch (const std::system_error& error) {
    return Error{ErrorCode::out_of_memory, "can't start " + std::to_string(threads) + " threads (" +
                                               error.what() + "); use a smaller number"};
  }
}

}  // namespace fovea
