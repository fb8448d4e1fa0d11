#pragma once
// A list that keeps its newest entries.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace fovea::profile {

template <class T>
class Newest {
 public:
  explicit Newest(size_t most) : most_(most) {}

  /// False if an older one was dropped.
  bool add(T value) {
    ++added_;
    if (kept_.size() < most_) {
      kept_.push_back(std::move(value));
      return true;
    }
    kept_[next_] = std::move(value);
    next_ = (next_ + 1) % most_;
    return false;
  }
  T& newest() { return kept_[(next_ + kept_.size() - 1) % kept_.size()]; }
  const T& newest() const { return kept_[(next_ + kept_.size() - 1) % kept_.size()]; }
  bool empty() const { return kept_.empty(); }
  uint64_t added() const { return added_; }
  uint64_t dropped() const { return added_ - kept_.size(); }
  void clear() {
    kept_.clear();
    next_ = 0;
    added_ = 0;
  }

  /// Oldest first.
  std::vector<T> in_order() const {
    std::vector<T> out;
    out.reserve(kept_.size());
    for (size_t i = 0; i < kept_.size(); ++i)
      out.push_back(kept_[(next_ + i) % kept_.size()]);
    return out;
  }

 private:
  size_t most_, next_ = 0;
  uint64_t added_ = 0;
  std::vector<T> kept_;
};

}  // namespace fovea::profile
