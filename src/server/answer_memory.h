#pragma once
// The bytes of all answers that are being made, or wait for their clients to take them.
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

/// What one answer has of it; may outlive the service, as a connection may that still sends it.
class AnswerShare {
 public:
  explicit AnswerShare(std::shared_ptr<AnswerMemory> all) : all_(std::move(all)) {}
  ~AnswerShare() { all_->used -= mine_; }
  AnswerShare(const AnswerShare&) = delete;
  AnswerShare& operator=(const AnswerShare&) = delete;

  /// False when there is not so much left; counted either way. For one thread at a time.
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
