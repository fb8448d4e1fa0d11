// The cases of prefill_chunks must reach what a kernel would do that split the keys of few rows although
// AttentionLimits::split_prefill is off: otherwise the level would prove nothing.
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/cuda/kernel_choice.h"
#include "builtin/project_backends.h"
#include "conformance/case_space.h"
#include "fovea/attention.h"

namespace fovea::conformance {
namespace {

/// Whether such a kernel would split the keys of a piece of a sequence, as in find_change(), and not those of
/// the whole sequence.
bool finds_splits(const BackendInfo& info, const Case& c) {
  using namespace fovea::cuda;
  const AttentionSpec& spec = c.problem.spec;
  AttentionLimits limits = c.layout.declared;
  EXPECT_FALSE(limits.split_prefill);
  limits.split_prefill = true;
  const Family family = family_of(info)(spec, Phase::prefill);
  const auto choice = choose_kernel(family, spec, KernelUse::extend, limits, kAnySharedBytes);
  EXPECT_TRUE(choice.ok()) << choice.error().message;
  return choice.ok() && std::ranges::any_of(c.problem.seqs, [&](const Sequence& s) {
           const int piece = std::min(s.n_q > 12 ? 7 : 1, (s.n_q + 1) / 2);
           return s.n_q <= s.n_k && s.n_q > choice->max_split_tokens && piece <= choice->max_split_tokens &&
                  s.n_k - s.n_q > choice->kernel.split_keys;
         });
}

TEST(PrefillChunks, CasesFindKernelsThatSplitFewRows) {
  const auto device = parse_device("sm90");
  ASSERT_TRUE(device.ok());
  int rows = 0;
  for (const auto& entry : project_backends().entries()) {
    const BackendInfo& info = *entry.info;
    if (info.capability.device != DeviceKind::cuda || !info.absent.empty()) continue;
    const CaseSpace space(info, *device);
    if (!space.fixed_to(Cell{"invariance", "prefill_chunks"})) continue;
    ++rows;
    const auto chunks = space.chunk_rows(1, 4);
    EXPECT_EQ(chunks.size(), 4u) << info.label();
    int found = 0;
    for (size_t i = 0; i < chunks.size(); ++i)
      found += finds_splits(info, space.make(chunks[i], i));
    // Kernels that read lists of keys split a row's alike, however many rows there are.
    EXPECT_GE(found, info.capability.features.has(Feature::sparse) ? 0 : 2) << info.label();
  }
  EXPECT_GE(rows, 4);
}

}  // namespace
}  // namespace fovea::conformance
