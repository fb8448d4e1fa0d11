// fovea bench linear: linear layers against the roofline. One row must read every weight once: share of the
// read bandwidth. Many rows are compute-bound: share of the fp32 FMA peak.
#include <cstdio>

#include "base/thread_pool.h"
#include "cli/json_io.h"
#include "cli/options.h"
#include "kernels/cpu/bench_linear.h"
#include "kernels/cpu/machine.h"

namespace fovea::cli {
namespace {

struct Shape {
  int64_t n, k;
};
// A square layer, and layers of Qwen3-0.6B: MLP up and down, and the LM head.
constexpr Shape kShapes[] = {{4096, 4096}, {3072, 1024}, {1024, 3072}, {151936, 1024}};

void run_shape(const BenchLinearFlags& flags, int64_t m, Shape shape, DType dtype,
               const MachineRates& machine, ThreadPool& pool) {
  const LinearTiming timing = bench_linear(m, shape.n, shape.k, dtype, pool, 1.0);
  const double gflops = timing.flops / timing.seconds * 1e-9;
  const double gbps = timing.bytes / timing.seconds * 1e-9;
  const double of_read = timing.read_seconds / timing.seconds;
  const double of_peak = gflops / machine.peak_gflops();
  if (flags.json) {
    JsonRow row;
    row.add("m", m)
        .add("n", shape.n)
        .add("k", shape.k)
        .add("dtype", to_string(dtype))
        .add("threads", pool.size());
    row.add("us", timing.seconds * 1e6).add("gb_s", gbps).add("gflops", gflops);
    row.add("share_of_plain_read", of_read).add("share_of_fma_peak", of_peak);
    std::puts(row.str().c_str());
    return;
  }
  std::printf(
      "%-9s M %4lld  N %6lld  K %5lld %10.1f us %7.2f GB/s %4.0f %% of a plain read %8.1f GFLOP/s %4.0f %% "
      "of "
      "peak\n",
      std::string(to_string(dtype)).c_str(), static_cast<long long>(m), static_cast<long long>(shape.n),
      static_cast<long long>(shape.k), timing.seconds * 1e6, gbps, of_read * 100, gflops, of_peak * 100);
}

}  // namespace

Status run_bench_linear(const BenchLinearFlags& flags) {
  const auto dtype = parse_dtype(flags.dtype);
  if (!dtype) return invalid("--dtype " + flags.dtype + ": allowed are float32, bfloat16, float16");
  ThreadPool pool(flags.threads);
  const MachineRates machine = measure_machine(pool);
  if (!flags.json)
    std::printf("%d threads: fp32 FMA peak %.1f GFLOP/s, read bandwidth from memory %.1f GB/s\n", pool.size(),
                machine.peak_gflops(), machine.dram_gbps());
  for (const int m : flags.rows)
    for (const Shape shape : kShapes) {
      if (m > 64 && shape.n > 100000) continue;  // the LM head is never computed for that many rows
      run_shape(flags, m, shape, *dtype, machine, pool);
    }
  return {};
}

}  // namespace fovea::cli
