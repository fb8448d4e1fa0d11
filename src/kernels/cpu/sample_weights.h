#pragma once
// Weights of a row of logits in the arithmetic of base/sample_math.h, vectorised: the same bits on every
// instruction set.
#include <cstdint>

namespace fovea {

/// The weight of x is e^((x - max) * scale) 2^43 rounded to an integer, 0 where it is below `least`.
struct WeightRule {
  float max;  ///< not below any x
  float scale = 1.0f;
  float least = 0.0f;  ///< min_p 2^43
};

/// Sum of the weights of x [n], n <= 2^20.
uint64_t sum_weights(const float* x, int64_t n, const WeightRule& rule);

/// weights[i] = the weight of x[i].
void fixed_weights(const float* x, int64_t n, const WeightRule& rule, uint64_t* weights);

/// How many of x [n] are at least `least`; NaN is not.
int64_t count_from(const float* x, int64_t n, float least);

}  // namespace fovea
