#include "attention/priorities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "builtin/project_backends.h"
#include "fovea/attention.h"

namespace fovea {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

AttentionSpec standard() {
  AttentionSpec spec;
  spec.num_heads = spec.num_kv_heads = 8;
  spec.head_dim = spec.v_head_dim = 128;
  spec.scale = 0.1f;
  return spec;
}

AttentionSpec mla(bool sparse = false) {
  AttentionSpec spec = standard();
  spec.use_mla = true;
  spec.use_sparse = sparse;
  spec.head_dim = 576;
  spec.v_head_dim = 512;
  return spec;
}

auto on(const char* device, const AttentionSpec& spec) {
  return priorities(*parse_device(device), spec);
}

TEST(Priorities, StandardAttention) {
  for (const char* device : {"sm100", "sm103"})
    EXPECT_THAT(on(device, standard()),
                ElementsAre("FLASHINFER", "FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION"));
  for (const char* device : {"sm75", "sm80", "sm86", "sm89", "sm90", "sm120"})
    EXPECT_THAT(on(device, standard()),
                ElementsAre("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"))
        << device;
}

TEST(Priorities, Mla) {
  for (const bool sparse : {false, true}) {
    EXPECT_THAT(on("sm100", mla(sparse)),
                ElementsAre("FLASHINFER_MLA", "CUTLASS_MLA", "FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA",
                            "FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE"));
    EXPECT_THAT(on("sm120", mla(sparse)), ElementsAre("TRITON_MLA", "FLASHINFER_MLA_SPARSE_SM120"));
  }
}

TEST(Priorities, MlaBeforeBlackwellHasASparseBackendForEveryDevice) {
  std::vector<std::string_view> want = {"FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA",
                                        "FLASHMLA_SPARSE"};
  for (const char* device : {"sm75", "sm80", "sm90"})
    EXPECT_THAT(on(device, mla()), ElementsAreArray(want)) << device;
  want.emplace_back("FLASHINFER_MLA_SPARSE");
  for (const char* device : {"sm75", "sm80", "sm90"})
    EXPECT_THAT(on(device, mla(true)), ElementsAreArray(want)) << device;
}

TEST(Priorities, OtherDevices) {
  EXPECT_THAT(on("cpu", standard()), ElementsAre("CPU_ATTN", "TORCH_NATIVE"));
  EXPECT_THAT(on("cpu", mla()), ElementsAre("CPU_MLA", "TORCH_NATIVE_MLA"));
  EXPECT_THAT(on("cpu", mla(true)), ElementsAre("CPU_MLA_SPARSE", "TORCH_NATIVE_MLA_SPARSE"));
  EXPECT_THAT(on("rocm", standard()),
              ElementsAre("ROCM_ATTN", "ROCM_AITER_FA", "ROCM_AITER_UNIFIED_ATTN", "TRITON_ATTN"));
  EXPECT_THAT(on("rocm", mla()), ElementsAre("ROCM_AITER_MLA", "TRITON_MLA", "ROCM_AITER_TRITON_MLA"));
  EXPECT_THAT(on("rocm", mla(true)), ElementsAre("ROCM_AITER_MLA_SPARSE"));
  EXPECT_THAT(on("npu", mla()), ElementsAre("ASCEND"));
  EXPECT_THAT(on("xpu", standard()), ElementsAre("INTEL_XPU"));
  EXPECT_THAT(on("xpu", mla()), ElementsAre("INTEL_XPU"));
  EXPECT_THAT(on("xpu", mla(true)), ElementsAre("XPU_MLA_SPARSE"));
}

TEST(Priorities, ModelsWithABackendOfTheirOwn) {
  AttentionSpec v4 = mla(true);
  v4.head_dim = 512;
  EXPECT_THAT(on("sm90", v4), ElementsAre("FLASHINFER_MLA_SPARSE_SM90"));
  EXPECT_THAT(on("sm80", v4), ElementsAre("FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA",
                                          "FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE"));
  v4.has_sink = true;
  EXPECT_THAT(on("sm90", v4), ElementsAre("FLASHMLA_SPARSE_DSV4", "FLASHINFER_MLA_SPARSE_DSV4"));
  EXPECT_THAT(on("rocm", v4), ElementsAre("ROCM_FLASHMLA_SPARSE_DSV4"));
  AttentionSpec blocks = standard();
  blocks.use_sparse = true;
  EXPECT_THAT(on("sm90", blocks), ElementsAre("MINIMAX_M3_SPARSE"));
}

TEST(Priorities, EveryNameIsRegisteredAndNoListRepeatsOne) {
  for (const PriorityList& list : priority_lists()) {
    std::set<std::string_view> seen;
    EXPECT_FALSE(list.names.empty()) << list.title;
    for (std::string_view name : list.names) {
      EXPECT_TRUE(seen.insert(name).second) << list.title << " " << name;
      const auto* entry = project_backends().find(name);
      ASSERT_NE(entry, nullptr) << name;
      EXPECT_EQ(entry->info->name, name) << "an alias";
    }
  }
}

}  // namespace
}  // namespace fovea
