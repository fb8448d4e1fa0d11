// What the rows claim and what the kernels' select() takes are two tables: no claim may be without a kernel.
#include <gtest/gtest.h>

#include "attention/batch_check.h"
#include "attention/project_backends.h"
#include "backends/cuda/kernel_choice.h"

namespace fovea::cuda {
namespace {

struct Row {
  const char* name;
  FamilyOf families;
};
constexpr Row kRows[] = {{"FLASH_ATTN", always_sm80},        {"TREE_ATTN", always_sm80},
                         {"FLASH_ATTN_DIFFKV", always_sm80}, {"FLASHINFER", sm80_or_simt},
                         {"FLASHINFER", simt_where_it_can},  {"TRITON_ATTN", always_portable}};

/// How many of the specs of one head size the row claims; each of them must have a kernel for every use.
int claimed(const Row& row, const BackendInfo& info, int head_dim, int group) {
  int count = 0;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (int kv = 0; kv < static_cast<int>(KvCacheDType::count_); ++kv) {
      AttentionSpec spec;
      spec.num_heads = 4 * group;
      spec.num_kv_heads = 4;
      spec.head_dim = spec.v_head_dim = head_dim;
      spec.scale = 0.1f;
      spec.dtype = dtype;
      spec.kv_dtype = static_cast<KvCacheDType>(kv);
      if (!check_supported(info, spec).ok()) continue;
      ++count;
      for (const KernelUse use : {KernelUse::decode, KernelUse::extend, KernelUse::extend_small}) {
        const Phase phase = use == KernelUse::decode ? Phase::decode : Phase::prefill;
        const auto kernel = choose_kernel(row.families(spec, phase), spec, use, {64, 64, 65536, 4096});
        EXPECT_TRUE(kernel.ok()) << row.name << ", " << to_string(dtype) << ", " << to_string(spec.kv_dtype)
                                 << ", head size " << head_dim << ": " << kernel.error().message;
      }
    }
  return count;
}

TEST(CudaClaims, EveryTypeAndHeadSizeOfARowHasAKernel) {
  for (const Row& row : kRows) {
    const auto* entry = project_backends().find(row.name);
    ASSERT_NE(entry, nullptr);
    for (const int group : {1, 8})
      for (int d = 1; d <= 520; ++d)
        claimed(row, *entry->info, d, group);
    EXPECT_GT(claimed(row, *entry->info, 64, 1), 0) << row.name;
  }
}

}  // namespace
}  // namespace fovea::cuda
