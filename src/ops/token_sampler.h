#pragma once
// Draws tokens from rows of logits: greedy, or temperature -> min_p -> top_k -> top_p -> draw, in vLLM's
// order.
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/sample_weights.h"

namespace fovea {

inline constexpr float kGreedyTemperature = 1e-5f;  ///< below it: argmax

/// How a token is drawn from its row.
struct DrawRule {
  float temperature = 1.0f;
  int top_k = 0;  ///< below 1 = off
  float top_p = 1.0f;
  float min_p = 0.0f;
};

/// A row's largest logit. Not valid if the row has a NaN or +inf, is empty or has only -inf: then nothing can
/// be drawn.
struct LogitScan {
  bool valid;
  float max;
};
LogitScan scan_logits(std::span<const float> logits);

/// Draws tokens with scratch memory of its own; one for each thread.
class TokenSampler {
 public:
  /// The index drawn from a valid row; `uniform` in [0, 1), a multiple of 2^-53. Greedy: the largest, the
  /// lowest index of a tie.
  ///
  /// With z = (logits - max) / temperature and w = e^z as an integer (base/sample_math.h): min_p keeps w >=
  /// min_p; top_k keeps logits that are at least the k-th largest of the row (with all ties); top_p sorts the
  /// rest in descending order of logits (lower index first on a tie) and keeps each that has less than top_p
  /// of the mass before it. The draw is the inverse of the cumulative distribution, in the order of the row,
  /// at `uniform`. Masses are exact sums, so that a device that adds in another order draws the same index.
  size_t draw(std::span<const float> logits, float max, const DrawRule& rule, double uniform);

 private:
  struct Candidate {
    int32_t id;
    float logit;
    uint64_t weight;
  };

  static size_t draw_unfiltered(std::span<const float> logits, const WeightRule& rule, uint64_t uniform);
  float kth_largest(std::span<const float> logits, size_t k);
  void collect(std::span<const float> logits, const WeightRule& rule, float least);
  void collect_top_p(std::span<const float> logits, const WeightRule& rule, float least, float top_p);
  template <class F>
  static void for_blocks(std::span<const float> logits, const WeightRule& rule, float least, const F& block);

  std::vector<Candidate> candidates_;  // in ascending order of ids
  std::vector<float> heap_;
  std::vector<size_t> order_;
};

}  // namespace fovea
