#pragma once
// The peak rates of this machine, which benchmarks are compared with.
#include <cstddef>
#include <string_view>
#include <vector>

#include "base/cpu_features.h"
#include "fovea/machine_floor.h"

namespace fovea {

class ThreadPool;

struct MachineRates {
  struct Fma {
    Isa isa;
    double one_thread, all_threads;  // fp32 GFLOP/s; an FMA is two
  };
  struct Read {
    std::string_view level;  // "L1", "L2", "L3", "DRAM"
    size_t bytes;            // read by each thread again and again (one_thread; DRAM: shared by all threads)
    double one_thread, all_threads;  // GB/s, 1e9 bytes
  };
  int threads = 0;
  std::vector<Fma> fma;    // every instruction set that this CPU has, best last
  std::vector<Read> read;  // nearest level first, DRAM last

  double peak_gflops() const { return fma.back().all_threads; }
  double dram_gbps() const { return read.back().all_threads; }
};

/// Seconds of a plain read of `bytes` (rounded down to 4 KiB pages) at `data`, a contiguous part per thread:
/// the least that streaming the same memory costs. Where memory lies can halve its bandwidth (a virtual
/// machine spans memory nodes), so a benchmark compares with its own buffers.
double plain_read_seconds(const void* data, size_t bytes, ThreadPool& pool);

/// Rough rates from some 20 ms and 64 MiB, for figures beside a program that runs: concurrent work
/// lowers them, and a last-level cache of 64 MiB or more is measured instead of memory.
MachineFloor measure_machine_floor(ThreadPool& pool);

/// Takes 2 to 3 s; the DRAM level allocates at least 512 MiB. Each figure is the best of several attempts.
MachineRates measure_machine(ThreadPool& pool);

}  // namespace fovea
