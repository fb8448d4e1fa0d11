#include "kernels/cpu/bench_linear.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/cpu/linear.h"

namespace fovea {

LinearTiming bench_linear(int64_t m, int64_t n, int64_t k, DType storage, ThreadPool& pool,
                          double min_seconds) {
  constexpr int64_t kDefeatCaches = int64_t{256} << 20;
  std::vector<float> source(static_cast<size_t>(n * k));
  for (size_t i = 0; i < source.size(); ++i)
    source[i] = static_cast<float>(i % 251) * 0.01f - 1.25f;
  std::vector<PackedMatrix> weights;
  int64_t packed = 0;
  do {
    weights.emplace_back(n, k, storage).pack_rows(0, n, source.data(), DType::f32, pool);
    packed += weights.back().bytes();
  } while (packed < kDefeatCaches || weights.size() < 2);

  std::vector<float> x(static_cast<size_t>(m * k), 0.5f), y(static_cast<size_t>(m * n));
  using Clock = std::chrono::steady_clock;
  constexpr double kBatchSeconds = 0.01;  // many calls of a small problem: one call could be lucky
  double total = 0, best = 1e30;
  for (size_t next = 0, batches = 0; total < min_seconds || batches < 3; ++batches) {
    const auto start = Clock::now();
    double seconds = 0;
    int calls = 0;
    for (; seconds < kBatchSeconds; ++calls) {
      linear(weights[next++ % weights.size()], x.data(), k, m, y.data(), n, nullptr, pool);
      seconds = std::chrono::duration<double>(Clock::now() - start).count();
    }
    total += seconds;
    best = std::min(best, seconds / calls);
  }
  LinearTiming timing;
  timing.seconds = best;
  timing.bytes = static_cast<double>(weights[0].bytes() + 4 * m * (k + n));
  timing.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  return timing;
}

}  // namespace fovea
