#pragma once
// Memory accounting, in bytes, for all answers that are being generated or wait to be sent.
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace fovea::server {

struct AnswerMemory {
  explicit AnswerMemory(int64_t limit) : most(limit) {}
  const int64_t most;
  std::atomic<int64_t> used{0};
};

/// The share of one answer. It may outlive the service while a connection still sends the answer.
class AnswerShare {
 public:
  explicit AnswerShare(std::shared_ptr<AnswerMemory> all) : all_(std::move(all)) {}
  ~AnswerShare() { all_->used -= mine_; }
  AnswerShare(const AnswerShare&) = delete;
  AnswerShare& operator=(const AnswerShare&) = delete;

  /// False when the limit is exceeded; `bytes` is counted either way. Call from one thread at a time.
  bool grow(int64_t bytes) {
    mine_ += bytes;
    return (all_->used += bytes) <= all_->most;
  }
  int64_t bytes() const { return mine_; }

 private:
  const std::shared_ptr<AnswerMemory> all_;
  int64_t mine_ = 0;
};

}  // namespace fovea::server
