// Linear layers of Fovea and oneDNN's matmul in one run, interleaved: the same shapes and threads. oneDNN's
// bf16 rounds x to bf16 and multiplies pairs (vdpbf16ps); ours keeps x in fp32 and sums in one order.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dnnl.hpp>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/bench_linear.h"

namespace {

using namespace fovea;
using Clock = std::chrono::steady_clock;

/// Seconds of one y [m, n] = x [m, k] W [k, n] in oneDNN with its own weight layout; the best of batches of
/// calls that rotate over 256 MiB of weights, as bench_linear() does.
double onednn_seconds(int64_t m, int64_t n, int64_t k, dnnl::memory::data_type type) {
  using dnnl::memory;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::desc x_desc({m, k}, type, memory::format_tag::ab);
  const memory::desc w_any({k, n}, type, memory::format_tag::any);
  const memory::desc y_desc({m, n}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(x_desc, w_any, y_desc), engine);
  const dnnl::matmul matmul(description);
  const auto weight_bytes = static_cast<int64_t>(description.weights_desc().get_size());
  std::vector<memory> weights(static_cast<size_t>(std::max<int64_t>(2, (256 << 20) / weight_bytes)));
  for (memory& w : weights) {
    w = memory(description.weights_desc(), engine);
    std::fill_n(static_cast<char*>(w.get_data_handle()), weight_bytes, 0x3c);  // small positive numbers
  }
  memory x(x_desc, engine), y(y_desc, engine);
  std::fill_n(static_cast<char*>(x.get_data_handle()), x_desc.get_size(), 0x3c);
  size_t next = 0;
  double best = 1e9;
  const auto start = Clock::now();
  while (std::chrono::duration<double>(Clock::now() - start).count() < 1.0) {
    int calls = 0;
    double seconds = 0;
    for (const auto batch = Clock::now(); seconds < 10e-3; ++calls) {
      matmul.execute(
          stream,
          {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, weights[next++ % weights.size()]}, {DNNL_ARG_DST, y}});
      stream.wait();
      seconds = std::chrono::duration<double>(Clock::now() - batch).count();
    }
    best = std::min(best, seconds / calls);
  }
  return best;
}

void compare(int64_t m, int64_t n, int64_t k, ThreadPool& pool) {
  const double ours = bench_linear(m, n, k, DType::bf16, pool, 1.0).seconds;
  const double ours_f32 = bench_linear(m, n, k, DType::f32, pool, 1.0).seconds;
  const double theirs = onednn_seconds(m, n, k, dnnl::memory::data_type::bf16);
  const double theirs_f32 = onednn_seconds(m, n, k, dnnl::memory::data_type::f32);
  const double gflop = 2e-9 * static_cast<double>(m * n * k);
  std::printf(
      "M %4lld N %6lld K %5lld  GFLOP/s: fovea bf16 %7.1f f32 %7.1f | oneDNN bf16 %7.1f f32 %7.1f | ratio "
      "bf16 %.2f f32 %.2f\n",
      static_cast<long long>(m), static_cast<long long>(n), static_cast<long long>(k), gflop / ours,
      gflop / ours_f32, gflop / theirs, gflop / theirs_f32, theirs / ours, theirs_f32 / ours_f32);
}

}  // namespace

int main(int argc, char** argv) {
  ThreadPool pool(argc > 1 ? std::atoi(argv[1]) : 0);
  omp_set_num_threads(pool.size());
  for (const int64_t m : {int64_t{1}, int64_t{8}, int64_t{512}}) {
    compare(m, 4096, 4096, pool);
    compare(m, 3072, 1024, pool);
    compare(m, 1024, 3072, pool);
  }
}
