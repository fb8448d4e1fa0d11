#include "kernels/cpu/machine.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/aligned.h"
#include "base/thread_pool.h"
#include "kernels/cpu/machine_kernels.h"

namespace fovea {
namespace {

using namespace machine_detail;
using Clock = std::chrono::steady_clock;

struct alignas(64) Sink {
  volatile float value = 0;
};

const MachineKernels& kernels(Isa isa) {
  switch (isa) {
    case Isa::avx512: return kMachineAvx512;
    case Isa::avx2: return kMachineAvx2;
    case Isa::generic: break;
  }
  return kMachineGeneric;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The best rate in 1e9 units/s of `attempts` calls of work(worker) -> units, on one thread or on all.
template <class Work>
double best_rate(ThreadPool& pool, bool all, int attempts, const Work& work) {
  std::vector<double> units(static_cast<size_t>(pool.size()));
  double best = 0;
  for (int a = 0; a < attempts; ++a) {
    const auto start = Clock::now();
    if (all)
      pool.run([&](int worker) { units[static_cast<size_t>(worker)] = work(worker); });
    else
      units[0] = work(0);
    const double seconds = seconds_since(start);
    double sum = units[0];
    for (size_t w = 1; all && w < units.size(); ++w)
      sum += units[w];
    best = std::max(best, sum / seconds * 1e-9);
  }
  return best;
}

/// Rounds that take `seconds` to twice that on one thread, found by doubling.
int64_t fma_rounds(const MachineKernels& k, double seconds, std::vector<Sink>& sinks) {
  for (int64_t rounds = 1 << 12;; rounds *= 2) {
    const auto start = Clock::now();
    k.fma(rounds, &sinks[0].value);
    if (seconds_since(start) > seconds) return rounds;
  }
}

MachineRates::Fma measure_fma(Isa isa, ThreadPool& pool, std::vector<Sink>& sinks) {
  const MachineKernels& k = kernels(isa);
  const int64_t rounds = fma_rounds(k, 8e-3, sinks);
  const auto work = [&](int worker) { return k.fma(rounds, &sinks[static_cast<size_t>(worker)].value); };
  return {isa, best_rate(pool, false, 5, work), best_rate(pool, true, 5, work)};
}

/// Each thread reads its own `bytes`, `repeats` times.
double measure_read(ThreadPool& pool, bool all, int attempts, const float* data, size_t bytes,
                    int64_t repeats, std::vector<Sink>& sinks) {
  const MachineKernels& k = kernels(detect_isa());
  return best_rate(pool, all, attempts, [&](int worker) {
    const auto w = static_cast<size_t>(worker);
    for (int64_t r = 0; r < repeats; ++r)
      k.read(data + w * bytes / sizeof(float), bytes, &sinks[w].value);
    return static_cast<double>(bytes) * static_cast<double>(repeats);
  });
}

/// Size of cache `index` of CPU 0 as the Linux kernel reports it (0: L1 data, 2: L2, 3: L3). glibc's
/// sysconf() counts the L3 caches of cores that a virtual machine does not have.
size_t cache_bytes(int index, size_t fallback) {
  const std::string path = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size";
  size_t kib = 0;
  if (std::FILE* file = std::fopen(path.c_str(), "r")) {
    if (std::fscanf(file, "%zuK", &kib) != 1) kib = 0;
    std::fclose(file);
  }
  return kib > 0 && kib < (size_t{1} << 24) ? kib << 10 : fallback;
}

size_t whole_pages(size_t bytes) {
  return std::max<size_t>(bytes / 4096, 1) * 4096;
}

}  // namespace

double plain_read_seconds(const void* data, size_t bytes, ThreadPool& pool) {
  const MachineKernels& k = kernels(detect_isa());
  std::vector<Sink> sinks(static_cast<size_t>(pool.size()));
  const auto start = Clock::now();
  pool.parallel_ranges(static_cast<int64_t>(bytes / 4096), 1, [&](int64_t first, int64_t last, int worker) {
    const char* begin = static_cast<const char*>(data) + first * 4096;
    k.read(reinterpret_cast<const float*>(begin), static_cast<size_t>(last - first) * 4096,
           &sinks[static_cast<size_t>(worker)].value);
  });
  return seconds_since(start);
}

MachineFloor measure_machine_floor(ThreadPool& pool) {
  constexpr size_t kBytes = size_t{64} << 20;
  const MachineKernels& k = kernels(detect_isa());
  std::vector<Sink> sinks(static_cast<size_t>(pool.size()));
  const int64_t rounds = fma_rounds(k, 5e-4, sinks);
  const double fma = best_rate(
      pool, true, 3, [&](int worker) { return k.fma(rounds, &sinks[static_cast<size_t>(worker)].value); });
  const size_t part = whole_pages(kBytes / static_cast<size_t>(pool.size()));
  AlignedArray<float> data(part * static_cast<size_t>(pool.size()) / sizeof(float));
  pool.run([&](int worker) {
    std::memset(data.data() + static_cast<size_t>(worker) * part / sizeof(float), 0, part);
  });
  return {measure_read(pool, true, 2, data.data(), part, 1, sinks) * 1e9, fma * 1e9};
}

MachineRates measure_machine(ThreadPool& pool) {
  MachineRates rates;
  rates.threads = pool.size();
  std::vector<Sink> sinks(static_cast<size_t>(pool.size()));
  for (Isa isa : {Isa::generic, Isa::avx2, Isa::avx512})
    if (isa <= detect_isa()) rates.fma.push_back(measure_fma(isa, pool, sinks));

  const size_t threads = static_cast<size_t>(pool.size());
  const size_t l1 = cache_bytes(0, 32 << 10);
  const size_t l2 = cache_bytes(2, 1 << 20);
  const size_t l3 = cache_bytes(3, 0);
  const size_t dram = std::max(size_t{512} << 20, 4 * l3);
  AlignedArray<float> data(dram / sizeof(float));
  pool.parallel_ranges(static_cast<int64_t>(dram), 4096, [&](int64_t begin, int64_t end, int) {
    std::memset(reinterpret_cast<char*>(data.data()) + begin, 0, static_cast<size_t>(end - begin));
  });

  const auto level = [&](std::string_view name, size_t bytes_one, size_t bytes_all) {
    constexpr size_t kVolume = size_t{256} << 20;  // of an attempt: 2 to 30 ms
    const bool memory = bytes_one == dram;
    const auto rate = [&](bool all, size_t bytes) {
      const auto repeats = static_cast<int64_t>(std::max<size_t>(kVolume / bytes, 1));
      return measure_read(pool, all, memory ? 10 : 5, data.data(), bytes, repeats, sinks);
    };
    rates.read.push_back({name, bytes_one, rate(false, bytes_one), rate(true, bytes_all)});
  };
  // Half a cache, so that other data does not evict it; the last level is shared.
  level("L1", whole_pages(l1 / 2), whole_pages(l1 / 2));
  level("L2", whole_pages(l2 / 2), whole_pages(l2 / 2));
  if (l3 / 2 / threads > 2 * l2) level("L3", whole_pages(l3 / 2), whole_pages(l3 / 2 / threads));
  level("DRAM", dram, whole_pages(dram / threads));
  return rates;
}

}  // namespace fovea
