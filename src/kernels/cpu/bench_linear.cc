#include "kernels/cpu/bench_linear.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/machine.h"

namespace fovea {
namespace {

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

}  // namespace

LinearTiming bench_linear(int64_t m, int64_t n, int64_t k, DType storage, ThreadPool& pool,
                          double min_seconds) {
  constexpr int64_t kDefeatCaches = int64_t{512} << 20;
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
  std::vector<double> times, reads;
  double total = 0;
  for (size_t next = 0; total < min_seconds || times.size() < 3;) {
    const auto start = Clock::now();
    double seconds = 0;
    int calls = 0;
    for (; seconds < kBatchSeconds; ++calls) {
      linear(weights[next++ % weights.size()], x.data(), k, m, y.data(), n, nullptr, pool);
      seconds = std::chrono::duration<double>(Clock::now() - start).count();
    }
    total += seconds;
    times.push_back(seconds / calls);
    double read = 0;
    for (int i = 0; i < calls; ++i, ++next)
      read += plain_read_seconds(weights[next % weights.size()].data(),
                                 static_cast<size_t>(weights[0].bytes()), pool);
    reads.push_back(read / calls);
  }
  LinearTiming timing;
  timing.seconds = median(times);
  timing.read_seconds = median(reads);
  timing.bytes = static_cast<double>(weights[0].bytes() + 4 * m * (k + n));
  timing.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  return timing;
}

}  // namespace fovea
