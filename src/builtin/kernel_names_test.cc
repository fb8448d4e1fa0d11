#include "backends/cuda/kernel_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "builtin/project_backends.h"
#include "fovea/attention.h"

namespace fovea::cuda {
namespace {

const BackendInfo& row(std::string_view name, std::string_view version) {
  for (const auto& entry : project_backends().entries())
    if (entry.info->name == name && entry.info->version == version) return *entry.info;
  ADD_FAILURE() << name << " " << version;
  return *project_backends().entries().front().info;
}

std::set<std::string> reached(std::string_view name, std::string_view version, const char* device) {
  const BackendInfo& info = row(name, version);
  std::set<std::string> out;
  for (const KernelName& k : reachable_kernels(info, family_of(info), *parse_device(device))) {
    EXPECT_NE(std::ranges::find(info.families, k.family), info.families.end()) << k.family;
    EXPECT_TRUE(out.insert(k.family + " " + k.instance).second) << k.instance;
  }
  return out;
}

TEST(KernelNames, EveryHopperKernelIsReachedByTheRowThatClaimsThem) {
  const std::set<std::string> names = reached("FLASH_ATTN", "FA3", "sm90");
  // Two types of queries: decode of 5 head sizes, 3 of e4m3 and 2 of x-packed pages; prefill of 5 head sizes,
  // each in 4 variants, all of fp8 too, with and without a soft cap, and 2 of int8.
  EXPECT_EQ(names.size(), 2u * (5 + 3 + 2) + 2u * (5 * 4 + 5 * 2 + 2));
  for (const char* name :
       {"sm90 decode bf16 D=128", "sm90 decode fp16 kv=e4m3 D=256", "sm90 decode bf16 D=192/128",
        "sm90 decode fp16 D=64 x-packed", "sm90 prefill bf16 D=128 tma",
        "sm90 prefill fp16 D=96 cp.async softcap", "sm90 prefill bf16 kv=fp8 D=128",
        "sm90 prefill fp16 kv=fp8 D=256 softcap", "sm90 prefill bf16 kv=int8 D=64"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(KernelNames, RowsReachTheirOwnFamiliesOnly) {
  const std::set<std::string> fa2 = reached("FLASH_ATTN", "FA2", "sm90");
  EXPECT_TRUE(fa2.contains("sm80 decode bf16 D=128"));
  EXPECT_TRUE(fa2.contains("sm80 decode few bf16 D=128 masks"));
  EXPECT_TRUE(fa2.contains("sm80 prefill small fp16 D=64"));
  EXPECT_TRUE(fa2.contains("sm80 prefill bf16 kv=8-bit D=256 masks"));
  const std::set<std::string> flashinfer = reached("FLASHINFER", "Native", "sm90");
  EXPECT_TRUE(
      std::ranges::any_of(flashinfer, [](const std::string& n) { return n.starts_with("simt decode"); }));
  const std::set<std::string> triton = reached("TRITON_ATTN", "", "sm90");
  EXPECT_TRUE(triton.contains("portable decode fp32 kv=fp32 D=128"));
  EXPECT_FALSE(std::ranges::any_of(triton, [](const std::string& n) { return n.starts_with("sm"); }));
}

TEST(KernelNames, NothingIsLaunchedForAStepWithoutWork) {
  EXPECT_TRUE(names_of({}, {}).empty());
}

TEST(KernelNames, AMergeOfItsOwnIsAKernelOfItsOwn) {
  KernelChoice choice;
  choice.kernel.head_dim = choice.kernel.v_head_dim = 128;
  choice.kernel.split_keys = 1024;
  choice.max_split_tokens = 16;
  const auto names = names_of(choice, {true, true, 0});
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0], (KernelName{"sm80", "decode bf16 D=128", 1024, 16}));
  EXPECT_EQ(names[1].instance, "merge bf16");
}

}  // namespace
}  // namespace fovea::cuda
