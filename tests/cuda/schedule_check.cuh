#pragma once
// Compares the work items that the device writes for a step with those that the host makes from its plan.
#include "fovea/result.h"
#include "kernels/cuda/common/schedule.h"
#include "sm80_check.cuh"

namespace fovea::cuda {

/// The items that the host makes of a step, and the number of their partial results per KV head.
inline std::vector<WorkItem> host_items(const PlanPolicy& policy, const AttentionLimits& limits,
                                        const PlanInput& input, const PageSource& pages, int32_t& partials) {
  const PartialRoom room = schedule_limits(policy, limits).room();
  const HostPlan plan = make_plan_on_host(policy, limits, input, room);
  expect(plan.error == PlanError::none, "has an error on the host", "schedule");
  std::vector<WorkItem> items;
  partials = 0;
  for (const PlanTile& tile : plan.tiles) {
    for (int k = 0; k < tile.num_splits; ++k)
      items.push_back(make_item(policy, input, pages, tile, k, partials));
    if (tile.num_splits > 1) partials += tile.num_splits * room.of_tile(tile.rows);
  }
  return items;
}

/// The items that the device makes are those that the host makes from a plan.
inline void check_schedule(KernelKind kind, int sequences, const MaskSpec& mask, int most_rows = 40,
                           int split_tokens = 16, int draft_tokens = 0) {
  const KernelInfo kernel = library(kind, Element::bf16, Element::bf16, 128, 128, false).info;
  const PlanPolicy policy = plan_policy(kernel, 2, 4, split_tokens, mask, draft_tokens);
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
  const Status limits_ok = check_plan_limits(policy, limits);
  expect(limits_ok.ok(), "has limits that are refused", "schedule");
  if (!limits_ok.ok()) return;
  PlanInput input;
  input.q_offsets = q_offsets.data();
  input.kv_lens = kv_lens.data();
  input.num_seqs = sequences;
  const PageSource pages{nullptr, 1000};
  int32_t partials = 0;
  std::vector<WorkItem> expected = host_items(policy, limits, input, pages, partials);
  const ScheduleLimits most = schedule_limits(policy, limits);
  expect(static_cast<int64_t>(expected.size()) <= most.max_items && partials <= most.max_partials,
         "exceeds its limits", "schedule");
  DeviceArray<int32_t> offsets(q_offsets), lens(kv_lens), count(1), error(1);
  DeviceArray<WorkItem> items(expected.size() + 1);
  DeviceArray<uint32_t> arrivals(static_cast<size_t>(partials) * policy.num_kv_heads + 1);
  PlanInput on_device = input;
  on_device.q_offsets = offsets.data, on_device.kv_lens = lens.data;
  const auto run = [&](const AttentionLimits& within, size_t items_expected, PlanError error_expected) {
    set_bytes(items.data, 0xff, items.count * sizeof(WorkItem));
    set_bytes(error.data, 0xff, 4);
    set_bytes(arrivals.data, 0xff, arrivals.count * 4);
    const Status status = launch_schedule(
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
    std::vector<uint32_t> counters(arrivals.count, ~0u);
    if (items_expected > 0)
      std::fill_n(counters.begin(), static_cast<size_t>(partials) * policy.num_kv_heads, 0u);
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
  // A sequence with a wrong length, or wrong page ids, has the items of one without keys; the others theirs.
  for (const PlanError wrong : {PlanError::kv_len, PlanError::pages}) {
    const int lost = sequences / 2;
    if (q_offsets[static_cast<size_t>(lost)] == q_offsets[static_cast<size_t>(lost) + 1]) break;
    std::vector<int32_t> bad_lens = kv_lens, no_lens = kv_lens;
    std::vector<uint8_t> bad_pages(static_cast<size_t>(sequences));
    (wrong == PlanError::kv_len ? bad_lens[static_cast<size_t>(lost)] = INT32_MAX
                                : bad_pages[static_cast<size_t>(lost)] = 1);
    no_lens[static_cast<size_t>(lost)] = 0;
    input.kv_lens = no_lens.data();
    expected = host_items(policy, limits, input, pages, partials);
    for (WorkItem& item : expected)
      if (item.seq == lost) item.n_k = kLostKeys;
    const DeviceArray<int32_t> bad(bad_lens);
    const DeviceArray<uint8_t> flags(bad_pages);
    on_device.kv_lens = bad.data, on_device.bad_pages = flags.data;
    run(limits, expected.size(), wrong);
    on_device.kv_lens = lens.data, on_device.bad_pages = nullptr;
  }
  // Invalid offsets: the rows are those of one sequence without keys, num_rows of them.
  std::vector<int32_t> one = {0, limits.max_tokens}, none = {0};
  input.q_offsets = one.data(), input.kv_lens = none.data(), input.num_seqs = 1;
  expected = host_items(policy, limits, input, pages, partials);
  for (WorkItem& item : expected)
    item.n_k = kLostKeys;
  std::vector<int32_t> falling = q_offsets;
  falling[0] = 1;
  const DeviceArray<int32_t> bad_offsets(falling);
  on_device.q_offsets = bad_offsets.data, on_device.num_rows = limits.max_tokens;
  run(limits, expected.size(), PlanError::q_offsets);
}

}  // namespace fovea::cuda
