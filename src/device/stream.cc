#include "device/stream.h"

#include <utility>

#include "fovea/stream.h"

namespace fovea {
namespace {

constexpr int kMaxThreads = 4096;

// The stream refers to the team, so that both live in one block.
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
  auto owned = std::make_shared<OwnedStream>(threads);
  return std::shared_ptr<Stream>(owned, &owned->stream);
}

}  // namespace fovea
