#pragma once
// The items that the device writes from a plan against those that the host makes of the same plan.
#include <memory>

#include "kernels/cuda/sm80/schedule.h"
#include "sm80_check.cuh"

namespace fovea::cuda {

/// The items that the device makes are those that the host makes from a plan.
inline void check_schedule(sm80::KernelKind kind, int sequences, const MaskSpec& mask, int most_rows = 40) {
  const sm80::KernelInfo kernel = library(kind, Element::bf16, Element::bf16, 128, 128, false).info;
  const PlanPolicy policy = sm80::plan_policy(kernel, 2, 4, 16, mask);
  std::vector<int32_t> q_offsets = {0}, kv_lens;
  AttentionLimits limits;
  for (int b = 0; b < sequences; ++b) {
    const int n_q = b % 7 == 6 ? 0 : b % 3 == 2 ? most_rows : 1;
    kv_lens.push_back(b % 5 == 4 ? 0 : static_cast<int>((gaussian(1, b) + 5) * 500));
    q_offsets.push_back(q_offsets.back() + n_q);
    limits.max_kv_tokens += n_q == 0 ? 0 : kv_lens.back();
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
  const sm80::PageSource pages{nullptr, 1000};
  std::vector<WorkItem> expected;
  int32_t parts = 0;
  for (int t = 0; t < host.header->tiles; ++t) {
    const PlanTile& tile = host.tiles[t];
    for (int c = 0; c < tile.chunks; ++c)
      expected.push_back(sm80::make_item(policy, input, pages, tile, c, parts));
    if (tile.chunks > 1) parts += tile.chunks;
  }
  const sm80::ScheduleLimits most = sm80::schedule_limits(policy, limits);
  expect(static_cast<int64_t>(expected.size()) <= most.max_items && parts <= most.max_parts,
         "exceeds its limits", "schedule");
  DeviceArray<int32_t> offsets(q_offsets), lens(kv_lens), count(1), error(1);
  DeviceArray<WorkItem> items(expected.size() + 1);
  DeviceArray<uint32_t> arrivals(static_cast<size_t>(parts) * policy.num_kv_heads + 1);
  PlanInput on_device = input;
  on_device.q_offsets = offsets.data, on_device.kv_lens = lens.data;
  const auto run = [&](const AttentionLimits& within, size_t items_expected, PlanError error_expected) {
    CUDA_CHECK(cudaMemset(items.data, 0xff, items.count * sizeof(WorkItem)));
    CUDA_CHECK(cudaMemset(error.data, 0xff, 4));
    CUDA_CHECK(cudaMemset(arrivals.data, 0xff, arrivals.count * 4));
    const Status status = sm80::launch_schedule(
        policy, within, on_device, pages,
        {items.data, count.data, reinterpret_cast<PlanError*>(error.data), arrivals.data}, nullptr);
    expect(status.ok(), "is not launched", "schedule");
    CUDA_CHECK(cudaDeviceSynchronize());
    expect(count.host()[0] == static_cast<int32_t>(items_expected), "has another number of items",
           "schedule");
    expect(error.host()[0] == static_cast<int32_t>(error_expected), "has another error", "schedule");
    const std::vector<WorkItem> got = items.host();
    expect(std::memcmp(got.data(), expected.data(), items_expected * sizeof(WorkItem)) == 0,
           "has other items", "schedule");
    std::vector<uint32_t> counters(arrivals.count, items_expected == 0 ? ~0u : 0u);
    counters.back() = ~0u;
    expect(arrivals.host() == counters, "has other counters", "schedule");
    for (size_t i = items_expected; i < got.size(); ++i)
      expect(got[i].seq == -1, "writes past its items", "schedule");
  };
  run(limits, expected.size(), PlanError::none);
  AttentionLimits wider = limits;  // more threads and blocks
  wider.max_tokens += 5000, wider.max_kv_tokens *= 9, wider.max_kv_len *= 2;
  run(wider, expected.size(), PlanError::none);
  if (limits.max_kv_tokens > 0) {
    AttentionLimits less = limits;
    --less.max_kv_tokens;
    run(less, 0, PlanError::kv_tokens);
  }
  AttentionLimits fewer = limits;
  --fewer.max_tokens;
  run(fewer, 0, PlanError::too_many_rows);
}

}  // namespace fovea::cuda
