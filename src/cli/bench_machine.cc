// fovea bench machine: peak rates of the CPU, of which other benchmarks report shares, and the GPUs present.
#include <cstdio>

#include "base/thread_pool.h"
#include "cli/json_io.h"
#include "cli/options.h"
#include "device/gpu.h"
#include "kernels/cpu/machine.h"

namespace fovea::cli {
namespace {

// Larger than the L2 of current GPUs (60 MB), and quick to allocate.
constexpr int64_t kGpuReadBytes = int64_t{4} << 30;

void print_json(const MachineRates& rates) {
  JsonRow row;
  row.add("threads", rates.threads).add("isa", to_string(current_isa()));
  for (const auto& fma : rates.fma) {
    row.add("fma_gflops_" + std::string(to_string(fma.isa)) + "_1t", fma.one_thread);
    row.add("fma_gflops_" + std::string(to_string(fma.isa)), fma.all_threads);
  }
  for (const auto& read : rates.read) {
    row.add("read_gb_s_" + std::string(read.level) + "_1t", read.one_thread);
    row.add("read_gb_s_" + std::string(read.level), read.all_threads);
  }
  std::puts(row.str().c_str());
}

void print_table(const MachineRates& rates) {
  std::printf("%-28s %12s %12s\n", "", "1 thread", (std::to_string(rates.threads) + " threads").c_str());
  for (const auto& fma : rates.fma)
    std::printf("fp32 FMA %-10s GFLOP/s   %12.1f %12.1f\n", std::string(to_string(fma.isa)).c_str(),
                fma.one_thread, fma.all_threads);
  for (const auto& read : rates.read)
    std::printf("read %-5s %7.1f MiB GB/s   %12.1f %12.1f\n", std::string(read.level).c_str(),
                static_cast<double>(read.bytes) / (1 << 20), read.one_thread, read.all_threads);
}

}  // namespace

Status run_bench_machine(const BenchMachineFlags& flags) {
  ThreadPool pool(flags.threads);
  const MachineRates rates = measure_machine(pool);
  if (flags.json)
    print_json(rates);
  else
    print_table(rates);
  const auto gpus = list_gpus();
  for (size_t i = 0; i < gpus.size(); ++i) {
    FOVEA_TRY(rate, measure_gpu_read_bandwidth(static_cast<int>(i), kGpuReadBytes, 10));
    std::fprintf(flags.json ? stderr : stdout,
                 "GPU %zu: %s, compute capability %d.%d, %d SMs, read %.0f GB/s\n", i, gpus[i].name.c_str(),
                 gpus[i].compute_capability / 10, gpus[i].compute_capability % 10, gpus[i].multiprocessors,
                 rate / 1e9);
  }
  if (gpus.empty() && !flags.json)
    std::puts(cuda_built() ? "GPU: none found" : "GPU: this build has no CUDA code");
  return {};
}

}  // namespace fovea::cli
