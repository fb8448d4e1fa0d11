#include "kernels/cuda/linear/linear_choice.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace fovea::cuda {
namespace {

using Key = std::tuple<int64_t, int64_t, bool, int64_t>;

Key key_of(const LinearChoice& choice) {
  return {choice.n, choice.k, choice.gated, choice.max_rows};
}

std::vector<LinearChoice>& choices() {
  static std::vector<LinearChoice> all;  // by key_of()
  return all;
}

}  // namespace

void set_linear_choices(std::vector<LinearChoice> all) {
  std::ranges::stable_sort(all, {}, key_of);
  choices() = std::move(all);
}

const LinearChoice* find_linear_choice(int64_t n, int64_t k, bool gated, int64_t rows) {
  const auto& all = choices();
  if (all.empty()) return nullptr;
  const auto at = std::ranges::lower_bound(all, Key{n, k, gated, rows}, {}, key_of);
  const bool found =
      at != all.end() && at->n == n && at->k == k && at->gated == gated && at->min_rows <= rows;
  return found ? &*at : nullptr;
}

WgmmaPlan chosen_wgmma_plan(int64_t rows, int64_t n, int64_t k, bool gated, int multiprocessors,
                            LinearKernel kernel) {
  if (kernel == LinearKernel::automatic)
    if (const LinearChoice* choice = find_linear_choice(n, k, gated, rows))
      return plan_wgmma(rows, n, k, gated, multiprocessors, choice->kernel, choice->options);
  return plan_wgmma(rows, n, k, gated, multiprocessors, kernel);
}

}  // namespace fovea::cuda
