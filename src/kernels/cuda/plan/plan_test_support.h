#pragma once
// Steps for the planner's tests, and a plan on the host with room of its own.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/cuda/plan/plan.h"

namespace fovea::cuda {

struct PlanStep {
  std::vector<int32_t> n_q, n_k;

  std::vector<int32_t> q_offsets() const {
    std::vector<int32_t> out = {0};
    for (const int32_t n : n_q)
      out.push_back(out.back() + n);
    return out;
  }
  /// The least limits that hold the step.
  AttentionLimits limits() const {
    AttentionLimits out;
    out.max_seqs = static_cast<int>(n_q.size());
    for (size_t b = 0; b < n_q.size(); ++b) {
      out.max_tokens += n_q[b];
      out.max_kv_tokens += n_q[b] > 0 ? n_k[b] : 0;
      if (n_q[b] > 0) out.max_kv_len = std::max(out.max_kv_len, n_k[b]);
    }
    return out;
  }
};

/// Lengths around every border: none, one, a block, a chunk, and long ones.
inline PlanStep random_step(std::mt19937& random, int seqs, int most_rows, int most_keys) {
  PlanStep step;
  const auto below = [&](int n) { return static_cast<int32_t>(random() % static_cast<unsigned>(n)); };
  const int32_t borders[] = {0, 1, 63, 64, 65, 255, 256, 257, 511, 512, 513, most_keys};
  for (int b = 0; b < seqs; ++b) {
    const int kind = below(4);
    step.n_q.push_back(kind == 0 ? 0 : kind == 1 ? 1 : 1 + below(most_rows));
    step.n_k.push_back(below(2) == 0 ? std::min(borders[below(std::size(borders))], most_keys)
                                     : below(most_keys + 1));
  }
  return step;
}

/// A plan made on the host in poisoned memory.
struct HostPlan {
  HostPlan(const PlanPolicy& p, const AttentionLimits& limits, const PlanStep& step, int dv = 8) : policy(p) {
    auto made = plan_layout(p, limits, dv);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    layout = *made;
    // Partial results are never touched by the planner.
    workspace.assign((layout.partial_lse + 64) / sizeof(Line), Line{});
    std::memset(workspace.data(), 0xff, workspace.size() * sizeof(Line));
    view = plan_view(layout, workspace.data());
    const std::vector<int32_t> offsets = step.q_offsets();
    PlanInput input;
    input.q_offsets = offsets.data();
    input.kv_lens = step.n_k.data();
    input.num_seqs = static_cast<int>(step.n_k.size());
    make_plan_on_host(policy, layout, input, view);
  }

  struct alignas(64) Line {
    std::byte bytes[64];
  };
  PlanPolicy policy;
  PlanLayout layout;
  std::vector<Line> workspace;
  PlanView view;
};

}  // namespace fovea::cuda
