#pragma once
// Outputs between the engine's thread, which must not wait, and the program's threads, which poll.
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "fovea/c_engine.h"
#include "fovea/engine.h"

namespace fovea::c_api {

/// An engine's output with its request's tag.
struct TaggedOutput {
  RequestOutput output;
  uint64_t tag = 0;
};

/// As fovea_outputs has them; null when there are none. fovea_outputs_free() frees it. Throws std::bad_alloc.
fovea_outputs* make_batch(std::vector<TaggedOutput> outputs);

class OutputQueue {
 public:
  /// Engine thread. An output that finds no memory is lost, and reported by the next take().
  void push(const RequestOutput& output, uint64_t tag) noexcept;

  /// Counts a request's answers as live; call before submit(), since outputs may come before it returns.
  void expect(int answers);
  /// Undoes expect(): the request was refused.
  void unexpect(int answers);

  /// Notes a request's id. An output may bring it before its submit() returns.
  void note_id(uint64_t id);
  /// Whether a request had this id, or a higher one.
  bool has_id(uint64_t id);

  /// All outputs; empty when there were none within `timeout_ms` (below 0 = no limit). Errors: closed; an
  /// output was lost.
  Result<std::vector<TaggedOutput>> take(int64_t timeout_ms);
  /// Waits until no answer is live; false when the time was up. Error: closed.
  Result<bool> wait_idle(int64_t timeout_ms);

  /// Wakes all callers; later outputs are dropped.
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable filled_, idle_;
  std::vector<TaggedOutput> queue_;
  int64_t live_ = 0;
  uint64_t newest_id_ = 0;
  bool closed_ = false, lost_ = false;
};

}  // namespace fovea::c_api
