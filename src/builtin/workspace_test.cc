#include <gmock/gmock.h>

#include <climits>

#include "backends/cuda/cuda_attention.h"
#include "backends/cuda/step_layout.h"
#include "builtin/project_backends.h"

namespace fovea::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

AttentionSpec llama() {
  AttentionSpec spec;
  spec.num_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_dim = spec.v_head_dim = 128;
  spec.scale = 0.088f;
  spec.dtype = DType::bf16;
  spec.page_size = 16;
  return spec;
}

size_t bytes(const AttentionSpec& spec, const AttentionLimits& limits) {
  const auto result =
      cuda_workspace_bytes(*project_backends().find("FLASH_ATTN")->info, always_sm80, spec, limits);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : 0;
}

TEST(CudaWorkspace, HoldsPartialResultsOnlyOfWhatMayBeSplit) {
  // A decode split has 1024 keys, 512 within limits of few sequences: a single split needs no partial
  // results.
  EXPECT_LT(bytes(llama(), {64, 64, 64 * 512, 512}), size_t{1} << 17);
  // 8 heads of 4 rows of 128 columns and a state, for each split.
  const size_t part = size_t{8} * 4 * (128 * 4 + 8);
  EXPECT_GT(bytes(llama(), {64, 64, 64 * 16384, 16384}), size_t{64} * 16 * part);
  EXPECT_LT(bytes(llama(), {1, 1, 8192, 8192}), size_t{17} * part + 8192);
}

TEST(CudaWorkspace, LimitsOfFewSequencesTakeTheirKernel) {
  const auto merges = [](const AttentionLimits& limits) {
    const auto choice = choose_kernel(Family::sm80, llama(), KernelUse::decode, limits, kAnySharedBytes);
    return choice.ok() && choice->kernel.fused_combine;
  };
  // 8 heads x 8 splits of 1024 keys: two sequences have 128 splits.
  EXPECT_TRUE(merges({1, 1, 8192, 8192}));
  EXPECT_TRUE(merges({2, 2, 16384, 8192}));
  EXPECT_FALSE(merges({3, 3, 24576, 8192}));
  EXPECT_FALSE(merges({1, 1, 131072, 131072}));
}

TEST(CudaWorkspace, TunedChoicesDoNotDependOnLimits) {
  const AttentionLimits limits[] = {{1, 1, 256, 256},
                                    {1, 64, 8192, 8192},
                                    {16, 16, 16 * 1024, 1024},
                                    {17, 8192, 17 * 1024, 1024},
                                    {256, 8192, 1 << 25, 1 << 17},
                                    {4096, 65536, int64_t{1} << 33, 1 << 21}};
  int few_differ = 0;
  for (const Family family : {Family::sm80, Family::sm90, Family::portable})
    for (const int kv_heads : {1, 8, 32})
      for (const KernelUse use : {KernelUse::decode, KernelUse::extend, KernelUse::extend_small}) {
        AttentionSpec spec = llama();
        spec.num_kv_heads = kv_heads;
        const auto choose = [&](AttentionLimits of, TuneFor tune) {
          of.tune_for = tune;
          const auto choice = choose_kernel(family, spec, use, of, kAnySharedBytes);
          EXPECT_TRUE(choice.ok()) << choice.error().message;
          return choice.ok() ? *choice : KernelChoice();
        };
        for (const TuneFor tune : {TuneFor::many_sequences, TuneFor::few_sequences}) {
          const KernelChoice first = choose(limits[0], tune);
          for (const AttentionLimits& of : limits) {
            const KernelChoice other = choose(of, tune);
            EXPECT_EQ(other.family, first.family);
            EXPECT_TRUE(other.kernel == first.kernel);
            EXPECT_EQ(other.max_split_tokens, first.max_split_tokens);
          }
        }
        few_differ += choose(limits[0], TuneFor::few_sequences).kernel !=
                      choose(limits[0], TuneFor::many_sequences).kernel;
      }
  EXPECT_GT(few_differ, 0);
}

TEST(CudaWorkspace, LargeLimitsSplitFewerRowsOfASequence) {
  // 256 sequences and a million keys: draft rows would need 16 times the partial results.
  const AttentionLimits limits = {256, 8192, 1 << 20, 1 << 17};
  EXPECT_LT(bytes(llama(), limits), size_t(kMostPartialBytes) + (size_t{8} << 20));
  const auto small = choose_kernel(Family::sm80, llama(), KernelUse::decode, {4, 64, 65536, 16384},
                                   kAnySharedBytes),
             large = choose_kernel(Family::sm80, llama(), KernelUse::decode, limits, kAnySharedBytes);
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_EQ(small->max_split_tokens, 16);
  EXPECT_LT(large->max_split_tokens, 16);
  EXPECT_GE(large->max_split_tokens, 1);
}

TEST(CudaWorkspace, PrefillIsNotSplitWhereTheLimitsForbidIt) {
  AttentionLimits limits = {4, 64, 65536, 16384};
  for (const Family family : {Family::sm80, Family::sm90, Family::portable})
    for (const KernelUse use : {KernelUse::decode, KernelUse::extend, KernelUse::extend_small}) {
      limits.split_prefill = true;
      const auto split = choose_kernel(family, llama(), use, limits, kAnySharedBytes);
      limits.split_prefill = false;
      const auto whole = choose_kernel(family, llama(), use, limits, kAnySharedBytes);
      ASSERT_TRUE(split.ok() && whole.ok());
      EXPECT_GE(split->max_split_tokens, 1);
      EXPECT_EQ(whole->max_split_tokens, use == KernelUse::decode ? split->max_split_tokens : 0);
      const auto layout = step_layout(llama(), *whole, limits);
      ASSERT_TRUE(layout.ok());
      EXPECT_EQ(layout->max_partials == 0, use != KernelUse::decode);
    }
}

TEST(CudaWorkspace, CountersOfPartsAreForKernelsThatMerge) {
  for (const AttentionLimits& limits : {AttentionLimits{1, 1, 8192, 8192}, {64, 64, 64 * 16384, 16384}}) {
    const auto choice = choose_kernel(Family::sm80, llama(), KernelUse::decode, limits, kAnySharedBytes);
    ASSERT_TRUE(choice.ok());
    const auto layout = step_layout(llama(), *choice, limits);
    ASSERT_TRUE(layout.ok());
    const auto counters = static_cast<size_t>(layout->max_partials) * 8 * sizeof(uint32_t);
    ASSERT_GT(counters, size_t{0});
    if (choice->kernel.fused_combine)
      EXPECT_GE(layout->partial_state - layout->arrivals, counters);
    else
      EXPECT_EQ(layout->partial_state, layout->arrivals);
  }
}

TEST(CudaWorkspace, IsEnoughForEveryTighterStep) {
  const AttentionLimits most = {32, 4096, 200000, 40000};
  for (const bool window : {false, true}) {
    AttentionSpec spec = llama();
    if (window) spec.mask.window_left = 1000, spec.mask.sink_tokens = 4;
    const size_t enough = bytes(spec, most);
    for (const KernelUse use : {KernelUse::decode, KernelUse::extend, KernelUse::extend_small})
      for (const AttentionLimits& step :
           {most, AttentionLimits{1, 1, 200000, 40000}, AttentionLimits{32, 32, 200000, 40000},
            AttentionLimits{3, 4096, 200000, 500}, AttentionLimits{0, 0, 0, 0}}) {
        const auto kernel = choose_kernel(Family::sm80, spec, use, most, kAnySharedBytes);
        ASSERT_TRUE(kernel.ok());
        const auto layout = step_layout(spec, *kernel, step);
        ASSERT_TRUE(layout.ok());
        EXPECT_LE(layout->bytes, enough);
      }
  }
}

TEST(CudaWorkspace, LimitsBeyondCountingAreRefusedWithTheNumbers) {
  const auto huge = cuda_workspace_bytes(*project_backends().find("FLASH_ATTN")->info, always_sm80, llama(),
                                         {INT32_MAX, INT32_MAX, INT64_MAX / 2, INT32_MAX});
  ASSERT_FALSE(huge.ok());
  EXPECT_THAT(huge.error().message, HasSubstr("lower the limits"));
  AttentionSpec spec = llama();
  spec.dtype = DType::f32;
  const auto wide = cuda_workspace_bytes(*project_backends().find("FLASH_ATTN")->info, always_sm80, spec, {});
  ASSERT_FALSE(wide.ok());
  EXPECT_THAT(wide.error().message, HasSubstr("dtype not supported"));
}

TEST(CudaKernelChoice, HopperDecodesFewSequencesByTheKernelForThem) {
  const auto family = [](int head_dim, const AttentionLimits& limits, KernelUse use = KernelUse::decode) {
    AttentionSpec spec = llama();
    spec.head_dim = spec.v_head_dim = head_dim;
    const auto choice = choose_kernel(Family::sm90, spec, use, limits, kAnySharedBytes);
    EXPECT_TRUE(choice.ok()) << choice.error().message;
    return choice->family;
  };
  const AttentionLimits few = {1, 1, 8192, 8192}, many = {64, 64, 64 * 16384, 16384};
  EXPECT_EQ(family(128, few), Family::sm80);
  EXPECT_EQ(family(64, few), Family::sm80);
  EXPECT_EQ(family(256, few), Family::sm90) << "sm80 has none of 256 for few";
  EXPECT_EQ(family(128, many), Family::sm90);
  EXPECT_EQ(family(128, {1, 1, 131072, 131072}), Family::sm90);
  EXPECT_EQ(family(128, few, KernelUse::extend), Family::sm90);
}

TEST(CudaKernelChoice, GeneralKernelsAreForMasksAndNegativeScales) {
  const auto general = [](auto change) {
    AttentionSpec spec = llama();
    change(spec);
    return needs_general_kernel(spec);
  };
  EXPECT_FALSE(general([](AttentionSpec&) {}));
  EXPECT_FALSE(general([](AttentionSpec& s) { s.mask.causal = false; }));
  EXPECT_FALSE(general([](AttentionSpec& s) { s.has_sink = true; }));
  EXPECT_TRUE(general([](AttentionSpec& s) { s.scale = -1; }))
      << "the largest product is not the largest score";
  EXPECT_TRUE(general([](AttentionSpec& s) { s.mask.window_left = 0; }));
  EXPECT_TRUE(general([](AttentionSpec& s) { s.mask.causal = false, s.mask.window_right = 0; }));
  EXPECT_TRUE(general([](AttentionSpec& s) { s.mask.chunk = 1; }));
  EXPECT_TRUE(general([](AttentionSpec& s) { s.mask.spans = true; }));
  EXPECT_TRUE(general([](AttentionSpec& s) { s.mask.causal = false, s.mask.packed = true; }));
  EXPECT_TRUE(general([](AttentionSpec& s) { s.mask.tree = true; }));
  EXPECT_TRUE(general([](AttentionSpec& s) { s.softcap = 1; }));
  EXPECT_TRUE(general([](AttentionSpec& s) { s.has_alibi = true; }));
}

TEST(CudaKernelChoice, TilesOfBothSizesSplitTheSameSequences) {
  const AttentionLimits limits = {256, 8192, 1 << 22, 1 << 17};
  for (const int group : {1, 4, 32}) {
    AttentionSpec spec = llama();
    spec.num_kv_heads = 32 / group;
    const auto large = choose_kernel(Family::sm80, spec, KernelUse::extend, limits, kAnySharedBytes),
               small = choose_kernel(Family::sm80, spec, KernelUse::extend_small, limits, kAnySharedBytes);
    ASSERT_TRUE(large.ok() && small.ok());
    EXPECT_EQ(large->max_split_tokens, small->max_split_tokens);
    EXPECT_EQ(large->kernel.split_keys, small->kernel.split_keys);
    EXPECT_EQ(large->kernel.tile_keys, small->kernel.tile_keys);
    EXPECT_LT(small->kernel.rows, large->kernel.rows);
  }
}

TEST(CudaKernelChoice, SmallTilesServeFewRowsAndDevicesOfLittleSharedMemory) {
  const AttentionSpec spec = llama();
  const AttentionLimits limits = {16, 8192, 1 << 17, 1 << 17};
  const auto large = choose_kernel(Family::sm80, spec, KernelUse::extend, limits, kAnySharedBytes),
             small = choose_kernel(Family::sm80, spec, KernelUse::extend_small, limits, kAnySharedBytes);
  ASSERT_TRUE(large.ok() && small.ok());
  const int ampere = shared_bytes_of(80), consumer = shared_bytes_of(86);
  BatchMeta meta;
  const int32_t len = 0;
  meta.kv_lens = {&len, 1};
  meta.tokens = 8192;
  EXPECT_EQ(extend_use(spec, meta, *large, 132), KernelUse::extend);
  EXPECT_GT(large->kernel.shared_bytes, ampere);
  EXPECT_LE(small->kernel.shared_bytes, consumer);
  const auto there = choose_kernel(Family::sm80, spec, KernelUse::extend, limits, ampere);
  ASSERT_TRUE(there.ok());
  EXPECT_EQ(there->kernel, small->kernel);
  EXPECT_EQ(there->max_split_tokens, large->max_split_tokens) << "a sequence is split alike on all devices";
  meta.tokens = 64;
  EXPECT_EQ(extend_use(spec, meta, *large, 132), KernelUse::extend_small);
}

TEST(CudaKernelChoice, CudaCoresDecodeBelowFourQueryHeadsOfAKvHead) {
  for (const int group : {1, 2, 4, 8}) {
    AttentionSpec spec = llama();
    spec.num_kv_heads = 32 / group;
    EXPECT_EQ(sm80_or_simt(spec, Phase::decode), group < 4 ? Family::simt : Family::sm80) << group;
    EXPECT_EQ(sm80_or_simt(spec, Phase::prefill), Family::sm80);
    EXPECT_EQ(simt_where_it_can(spec, Phase::decode), Family::simt);
    EXPECT_EQ(simt_where_it_can(spec, Phase::prefill), Family::sm80);
    spec.mask.tree = true;
    EXPECT_EQ(sm80_or_simt(spec, Phase::decode), Family::sm80) << "they have no trees";
    EXPECT_EQ(simt_where_it_can(spec, Phase::decode), Family::sm80);
    spec.mask = {};
    spec.mask.window_left = 100;
    const auto kernel =
        choose_kernel(sm80_or_simt(spec, Phase::decode), spec, KernelUse::decode, {}, kAnySharedBytes);
    EXPECT_TRUE(kernel.ok()) << kernel.error().message;
  }
}

}  // namespace
}  // namespace fovea::cuda
