#pragma once
// A constraint for tests: after n tokens those that follow are chosen by a hash of all of them.
#include <gtest/gtest.h>

#include <vector>

#include "engine/token_constraint.h"

namespace fovea::test {

class HashConstraint final : public TokenConstraint {
 public:
  /// Allows about one token of `every`, and everything after each third token. `end` is always allowed and
  /// ends the answer; -1 = no token does.
  explicit HashConstraint(uint64_t seed, uint64_t every = 3, int32_t end = -1)
      : states_{seed}, every_(every), end_(end) {}

  bool allows(int32_t token) const {
    return token == end_ || states_.size() % 3 == 0 ||
           mix(states_.back(), static_cast<uint64_t>(token) + 1) % every_ == 0;
  }
  bool fill_mask(std::span<uint32_t> mask) override {
    if (states_.size() % 3 == 0) return false;
    for (size_t word = 0; word < mask.size(); ++word) {
      mask[word] = 0;
      for (size_t bit = 0; bit < 32; ++bit)
        mask[word] |= static_cast<uint32_t>(allows(static_cast<int32_t>(word * 32 + bit))) << bit;
    }
    return true;
  }
  bool advance(int32_t token) override {
    if (!allows(token)) return false;
    if (token == end_) return false;
    states_.push_back(mix(states_.back(), static_cast<uint64_t>(token) + 7));
    return true;
  }
  void roll_back(int tokens) override {
    ASSERT_LE(tokens, kMaxRollBack);
    ASSERT_LT(static_cast<size_t>(tokens), states_.size());
    states_.resize(states_.size() - static_cast<size_t>(tokens));
  }
  /// Tokens so far.
  size_t size() const { return states_.size() - 1; }

 private:
  static uint64_t mix(uint64_t state, uint64_t value) {
    state = (state ^ value) * 0x9E3779B97F4A7C15u;
    return state ^ state >> 29;
  }

  std::vector<uint64_t> states_;
  uint64_t every_;
  int32_t end_;
};

}  // namespace fovea::test
