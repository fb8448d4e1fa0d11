#pragma once
// Mask and online softmax of one row of a tile: scores become weights e^(s - m) in place.
#include "base/mutation.h"
#include "kernels/cpu/attn_params.h"
#include "kernels/cpu/simd.h"

namespace fovea::FOVEA_SIMD_NAMESPACE {

/// How a dot product of one row becomes a score, apart from the mask.
struct RowScore {
  float scale = 1.0f, softcap = 0.0f;
  float slope = 0.0f;           // ALiBi: s -= slope * |position - j|
  float distance = 0.0f;        // position - first key of the tile
  const float* bias = nullptr;  // tree bias of the row for the keys [bias_first, bias_last) of the tile
  int bias_first = 0, bias_last = 0;
};

/// State of one row: the running row max, and the lane sums of its weights (lane = key mod kLanes).
struct RowSum {
  float* max;
  float* lanes;
};

/// Scores `s` [kTileKeys] of a row that sees the keys of `seen` (not 0). Returns alpha, the
/// factor that rescales earlier sums. Scores of unseen keys are arbitrary.
FOVEA_INLINE float softmax_row(float* s, uint64_t seen, const RowScore& score, RowSum sum) {
  constexpr int kLanes = Vec::kLanes;
  constexpr int kVecs = attn::kTileKeys / kLanes;
  constexpr uint32_t kAll = kLanes == 32 ? ~0u : (1u << kLanes) - 1u;
  const float minus_inf = -__builtin_inff();

  const bool plain = score.bias == nullptr && score.slope == 0.0f && !(score.softcap > 0.0f);
  if (!plain) {
    const Vec inverse = set1(score.softcap > 0.0f ? 1.0f / score.softcap : 0.0f);
    for (int i = 0; i < kVecs; ++i) {
      const bool late = mutated(Mutation::softcap_first) && score.softcap > 0.0f;
      Vec x = load(s + i * kLanes) * set1(late ? 1.0f : score.scale);
      if (score.softcap > 0.0f) x = tanh(x * inverse) * set1(score.softcap);
      if (late) x = x * set1(score.scale);
      if (score.slope != 0.0f) {
        const Vec away = set1(score.distance - static_cast<float>(i * kLanes)) - lane_index();
        x = x - set1(score.slope) * max(away, zero() - away);
      }
      store(s + i * kLanes, x);
    }
    for (int j = score.bias_first; j < score.bias_last; ++j)
      s[j] += score.bias[j - score.bias_first];
  }

  Vec x[kVecs];
  Vec high = set1(minus_inf);
#pragma GCC unroll 8
  for (int i = 0; i < kVecs; ++i) {
    const uint32_t bits = static_cast<uint32_t>(seen >> (i * kLanes)) & kAll;
    x[i] = load(s + i * kLanes);
    if (plain) x[i] = x[i] * set1(score.scale);
    if (seen != ~uint64_t{0}) x[i] = select_bits(bits, x[i], set1(minus_inf));
    high = max(high, x[i]);
  }
  const float before = *sum.max;
  const float tile_max = reduce_max(high);
  const float after = before > tile_max ? before : tile_max;
  const float base = after == minus_inf ? 0.0f : after;  // all seen scores are -inf: every weight is 0
  float alpha = 1.0f;
  if (after != before) {
    float lanes[kLanes];
    store(lanes, exp(set1(before - base)));
    alpha = lanes[0];
    *sum.max = after;
  }
  Vec total = load(sum.lanes) * set1(alpha);
#pragma GCC unroll 8
  for (int i = 0; i < kVecs; ++i) {
    const Vec below = x[i] - set1(base);
    const Vec weight = select_less(below, set1(attn::kMinExponent), zero(), exp(below));
    store(s + i * kLanes, weight);
    total = total + weight;
  }
  store(sum.lanes, total);
  return alpha;
}

}  // namespace fovea::FOVEA_SIMD_NAMESPACE
