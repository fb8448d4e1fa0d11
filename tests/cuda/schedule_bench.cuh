#pragma once
// Times of scheduling a step: from its arrays to its work items.
#include "fovea/result.h"
#include "kernels/cuda/common/schedule.h"
#include "sm80_bench.cuh"

namespace fovea::cuda {

inline void bench_schedule(KernelKind kind, const char* name, int sequences, int rows, int least, int most) {
  const KernelInfo kernel = library(kind, Element::bf16, Element::bf16, 128, 128, false).info;
  const PlanPolicy policy = plan_policy(kernel, 8, 4, rows == 1 ? 1 : 16, {});
  std::vector<int32_t> q_offsets = {0}, kv_lens;
  AttentionLimits limits;
  std::mt19937 random(1);
  for (int b = 0; b < sequences; ++b) {
    kv_lens.push_back(least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1)));
    q_offsets.push_back(q_offsets.back() + rows);
    limits.max_kv_tokens += kv_lens.back();
  }
  limits.max_seqs = sequences, limits.max_tokens = q_offsets.back(), limits.max_kv_len = most;
  const ScheduleLimits bounds = schedule_limits(policy, limits);
  DeviceArray<int32_t> offsets(q_offsets), lens(kv_lens), count(1), error(1);
  DeviceArray<WorkItem> items(static_cast<size_t>(bounds.max_items));
  PlanInput input;
  input.q_offsets = offsets.data, input.kv_lens = lens.data, input.num_seqs = sequences;
  const double us = graph_time(50, [&](int, cudaStream_t stream) {
    const Status status =
        launch_schedule(policy, limits, input, {nullptr, 1024},
                        {items.data, count.data, reinterpret_cast<PlanError*>(error.data)}, stream);
    if (!status.ok()) std::printf("%s\n", status.error().message.c_str());
  });
  std::printf("schedule %-24s %6.2f us, %d items, partial results %.1f MB\n", name, us, count.host()[0],
              static_cast<double>(bounds.max_partials) * 8 * bounds.partial_rows * 130 * 4 / 1e6);
  std::fflush(stdout);
}

inline void bench_schedules() {
  bench_schedule(KernelKind::decode, "B1 ctx8192", 1, 1, 8192, 8192);
  bench_schedule(KernelKind::decode, "B1 ctx131072", 1, 1, 131072, 131072);
  bench_schedule(KernelKind::decode, "B64 mixed", 64, 1, 128, 16384);
  bench_schedule(KernelKind::decode, "B256 ctx2048", 256, 1, 2048, 2048);
  bench_schedule(KernelKind::decode, "B256 mixed", 256, 1, 128, 16384);
  bench_schedule(KernelKind::decode, "B512 mixed", 512, 1, 128, 16384);
  bench_schedule(KernelKind::decode, "B1024 ctx2048", 1024, 1, 2048, 2048);
  bench_schedule(KernelKind::extend, "B8 of 2048 rows", 8, 2048, 2048, 8192);
  bench_schedule(KernelKind::extend, "B1 of 16384 rows", 1, 16384, 16384, 16384);
}

}  // namespace fovea::cuda
