#pragma once
// Draws tokens from rows of logits: greedy, or temperature -> min_p -> top_k -> top_p -> draw, in vLLM's
// order.
#include <cstdint>
#include <span>
#include <vector>

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
  /// The index drawn from a valid row; `uniform` in [0, 1). Greedy: the largest, the lowest index of a tie.
  ///
  /// With z = (logits - max) / temperature, w = e^z: min_p keeps w >= min_p; top_k keeps what is at least the
  /// k-th largest (with all ties); top_p sorts the rest in descending order (lower index first on a tie) and
  /// keeps each that has less than top_p of the mass before it. The draw is the inverse of the cumulative
  /// distribution, in the order of the row, at `uniform`.
  size_t draw(std::span<const float> logits, float max, const DrawRule& rule, double uniform);

 private:
  void keep_top_k(size_t k);
  void keep_top_p(double top_p);
  double set_weights();

  // Candidates in ascending order; top_p needs both z_ and weight_.
  std::vector<int32_t> id_;
  std::vector<float> z_, weight_, scratch_;
  std::vector<size_t> order_;
};

}  // namespace fovea
