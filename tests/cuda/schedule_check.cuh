#pragma once
// The items that the device writes from a plan against those that the host makes of the same plan.
#include <memory>

#include "kernels/cuda/sm80/schedule.h"
#include "sm80_check.cuh"

namespace fovea::cuda {

inline void check_schedule(sm80::KernelKind kind, int sequences, const MaskSpec& mask) {
  const sm80::KernelInfo kernel = library(kind, Element::bf16, Element::bf16, 128, 128, false).info;
  const PlanPolicy policy = sm80::plan_policy(kernel, 2, 4, 16, mask);
  std::vector<int32_t> q_offsets = {0}, kv_lens;
  AttentionLimits limits;
  for (int b = 0; b < sequences; ++b) {
    const int n_q = b % 3 == 2 ? 40 : 1;
    kv_lens.push_back(b % 5 == 4 ? 0 : static_cast<int>((gaussian(1, b) + 5) * 500));
    q_offsets.push_back(q_offsets.back() + n_q);
    limits.max_kv_tokens += kv_lens.back();
    limits.max_kv_len = std::max(limits.max_kv_len, kv_lens.back());
  }
  limits.max_seqs = sequences;
  limits.max_tokens = q_offsets.back();
  const Result<PlanLayout> layout = plan_layout(policy, limits, 128);
  expect(layout.ok(), "has no layout", "schedule");
  if (!layout.ok()) return;
  std::vector<std::byte> memory(layout->bytes + 64);
  void* base = memory.data();
  size_t room = memory.size();
  const PlanView host = plan_view(*layout, std::align(64, layout->bytes, base, room));
  PlanInput input;
  input.q_offsets = q_offsets.data();
  input.kv_lens = kv_lens.data();
  input.num_seqs = sequences;
  make_plan_on_host(policy, *layout, input, host);
  std::vector<WorkItem> expected;
  int32_t parts = 0;
  for (int t = 0; t < host.header->tiles; ++t) {
    const PlanTile& tile = host.tiles[t];
    for (int c = 0; c < tile.chunks; ++c)
      expected.push_back(sm80::make_item(policy, input, {nullptr, 1000}, tile, c, parts));
    if (tile.chunks > 1) parts += tile.chunks;
  }
  DeviceArray<std::byte> device(layout->bytes);
  CUDA_CHECK(cudaMemcpy(device.data, base, layout->bytes, cudaMemcpyHostToDevice));
  DeviceArray<WorkItem> items(expected.size() + 1);
  CUDA_CHECK(cudaMemset(items.data, 0xff, items.count * sizeof(WorkItem)));
  DeviceArray<int32_t> count(1);
  DeviceArray<uint32_t> arrivals(static_cast<size_t>(parts) * policy.num_kv_heads + 1);
  CUDA_CHECK(cudaMemset(arrivals.data, 0xff, arrivals.count * 4));
  const Status status = sm80::launch_schedule(policy, input, plan_view(*layout, device.data), {nullptr, 1000},
                                              items.data, count.data, nullptr, arrivals.data);
  expect(status.ok(), "is not launched", "schedule");
  CUDA_CHECK(cudaDeviceSynchronize());
  expect(count.host()[0] == static_cast<int32_t>(expected.size()), "has another number of items", "schedule");
  std::vector<uint32_t> counters(arrivals.count, 0);
  counters.back() = ~0u;
  expect(arrivals.host() == counters, "has other counters than zeros", "schedule");
  const std::vector<WorkItem> got = items.host();
  expect(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(WorkItem)) == 0, "has other items",
         "schedule");
  expect(got.back().seq == -1, "writes past its items", "schedule");
}

}  // namespace fovea::cuda
