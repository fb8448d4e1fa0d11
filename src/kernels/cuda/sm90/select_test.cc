#include "kernels/cuda/sm90/select.h"

#include <gtest/gtest.h>

#include "fovea/result.h"
#include "kernels/cuda/sm90/kernels.h"
#include "kernels/cuda/sm90/x_packed.h"

namespace fovea::cuda::sm90 {
namespace {

constexpr KernelKind kKinds[] = {KernelKind::decode, KernelKind::extend, KernelKind::extend_small};

std::string refusal(const Problem& p, KernelKind kind) {
  const auto info = select(p, kind);
  return info.ok() ? "" : info.error().message;
}

/// Every mask and score that all kernels serve.
std::vector<Problem> variants(Problem p) {
  std::vector<Problem> all = {p};
  const auto add = [&](auto change) {
    all.push_back(p);
    change(all.back());
  };
  add([](Problem& x) { x.mask.causal = false; });
  add([](Problem& x) { x.mask.window_left = 100; });
  add([](Problem& x) { x.mask.causal = false, x.mask.window_left = 5, x.mask.window_right = 9; });
  add([](Problem& x) { x.mask.chunk = 8192; });
  add([](Problem& x) { x.mask.sink_tokens = 4; });  // no effect without a window
  add([](Problem& x) { x.softcap = true; });
  return all;
}

struct Size {
  int d, dv;
};
constexpr Size kSizes[] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};

TEST(Sm90Select, ServesItsHeadSizesWithEveryMask) {
  for (const KernelKind kind : kKinds)
    for (const QueryType q : {QueryType::f16, QueryType::bf16})
      for (const Size size : kSizes)
        for (const Problem& p : variants({q, KvType::same, size.d, size.dv, {}})) {
          const auto info = select(p, kind);
          ASSERT_TRUE(info.ok()) << info.error().message;
          EXPECT_EQ(info->q, q);
          EXPECT_EQ(info->kv, KvType::same);
          EXPECT_EQ(info->head_dim, size.d);
          EXPECT_EQ(info->v_head_dim, size.dv);
          EXPECT_EQ(info->kind == KernelKind::decode, kind == KernelKind::decode);
        }
}

TEST(Sm90Select, ReadsXPackedPages) {
  const auto refused = [](const Problem& p, KernelKind kind, int page_size) {
    const auto info = select(p, kind);
    const Status status = info.ok() ? check_x_packed(*info, page_size) : Status(info.error());
    return status.ok() ? "" : status.error().message;
  };
  for (const KernelKind kind : kKinds)
    for (const QueryType q : {QueryType::f16, QueryType::bf16})
      for (const Size size : kSizes)
        for (const KvType kv : {KvType::same, KvType::e4m3}) {
          const Problem p{q, kv, size.d, size.dv, {}};
          if (!select(p, kind).ok()) continue;
          const bool served =
              kind != KernelKind::decode || (kv == KvType::same && (size.d == 64 || size.d == 128));
          EXPECT_EQ(refused(p, kind, 16),
                    served ? ""
                           : "the sm90 decode kernels read x-packed pages of 16-bit caches with head sizes "
                             "64 and 128");
        }
  const Problem p{QueryType::bf16, KvType::same, 128, 128, {}};
  EXPECT_EQ(refused(p, KernelKind::decode, 24), "");
  EXPECT_EQ(refused(p, KernelKind::extend, 12),
            "the sm90 kernels read x-packed pages of multiples of 8 keys; the page size is 12");
  EXPECT_EQ(refused({QueryType::bf16, KvType::e4m3, 128, 128, {}}, KernelKind::extend, 24),
            "the sm90 kernels read x-packed pages of multiples of 16 keys; the page size is 24");
}

TEST(Sm90Select, ReadsFp8) {
  for (const QueryType q : {QueryType::f16, QueryType::bf16})
    for (const Size size : kSizes)
      for (const KernelKind kind : kKinds)
        for (Problem p : variants({q, KvType::e4m3, size.d, size.dv, {}})) {
          if (kind == KernelKind::decode && (size.d == 96 || size.d == 192)) continue;
          const auto info = select(p, kind);
          ASSERT_TRUE(info.ok()) << info.error().message;
          EXPECT_EQ(info->kv, KvType::e4m3);
          EXPECT_EQ(info->head_dim, size.d);
          if (kind == KernelKind::decode) continue;
          p.kv = KvType::e5m2;
          const auto other = select(p, kind);
          ASSERT_TRUE(other.ok()) << other.error().message;
          EXPECT_EQ(*info, *other);
        }
  EXPECT_EQ(refusal({QueryType::bf16, KvType::e4m3, 192, 128, {}}, KernelKind::decode),
            "head size is 192 with V of 128; the sm90 decode kernels take 64, 128 and 256 with fp8_e4m3");
  EXPECT_EQ(
      refusal({QueryType::bf16, KvType::e5m2, 80, 80, {}}, KernelKind::extend),
      "head size is 80; the sm90 prefill kernels take 64, 96, 128, 192 with V of 128 and 256 with fp8_e5m2");
  EXPECT_EQ(refusal({QueryType::bf16, KvType::e5m2, 128, 128, {}}, KernelKind::decode),
            "the sm90 decode kernels read no KV cache of fp8_e5m2");
}

TEST(Sm90Select, PrefillReadsScalesOfHeadsAndTokens) {
  Problem p{QueryType::bf16, KvType::e4m3, 128, 128, {}};
  p.per_head_scales = true;
  EXPECT_TRUE(select(p, KernelKind::extend).ok());
  EXPECT_EQ(refusal(p, KernelKind::decode), "the sm90 decode kernels have no scales of each head");
  p.softcap = true;
  EXPECT_EQ(refusal(p, KernelKind::extend),
            "the sm90 prefill kernels have no soft cap with scales of each head");
  p = {QueryType::f16, KvType::int8, 64, 64, {}};
  const auto info = select(p, KernelKind::extend);
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->kv, KvType::int8);
  p.softcap = true;
  EXPECT_EQ(refusal(p, KernelKind::extend),
            "the sm90 prefill kernels have no soft cap with scales of each token");
  EXPECT_EQ(refusal({QueryType::bf16, KvType::int8, 128, 128, {}}, KernelKind::decode),
            "the sm90 decode kernels read no KV cache of int8_per_token_head");
  EXPECT_EQ(refusal({QueryType::f16, KvType::int8, 256, 256, {}}, KernelKind::extend),
            "head size is 256; the sm90 prefill kernels take 64 and 128 with int8_per_token_head");
}

TEST(Sm90Select, KernelsFitTheDeviceAndThePlanner) {
  for (const auto kernels : {prefill_kernels(), decode_kernels()}) {
    ASSERT_FALSE(kernels.empty());
    for (const KernelInfo& k : kernels) {
      EXPECT_LE(k.shared_bytes, 227 * 1024);
      EXPECT_LE((k.shared_bytes + 1024) * k.blocks_per_sm, 228 * 1024);
      EXPECT_EQ(k.threads % 128, 0);
      EXPECT_LE(k.threads * k.blocks_per_sm, 2048);
      EXPECT_GT(k.rows, 0);
      EXPECT_GT(k.tile_keys, 0);
      EXPECT_EQ(k.split_keys % k.tile_keys, 0);
    }
  }
}

// A row must have the same bits from either; that needs tiles of the same keys.
TEST(Sm90Select, SmallTilesTakeTheSameKeysAsLargeOnes) {
  for (const Size size : kSizes)
    for (const Problem& p : variants({QueryType::bf16, KvType::same, size.d, size.dv, {}})) {
      const auto large = select(p, KernelKind::extend), small = select(p, KernelKind::extend_small);
      ASSERT_TRUE(large.ok() && small.ok());
      EXPECT_EQ(large->tile_keys, small->tile_keys);
      EXPECT_EQ(large->split_keys, small->split_keys);
      EXPECT_LE(small->rows, large->rows);
    }
}

TEST(Sm90Select, SaysWhatItLacks) {
  struct Case {
    const char* what;
    void (*change)(Problem&);
  };
  const Case cases[] = {
      {"spans", [](Problem& p) { p.mask.spans = true; }},
      {"packed masks", [](Problem& p) { p.mask.packed = true, p.mask.causal = false; }},
      {"tree masks", [](Problem& p) { p.mask.tree = true; }},
      {"ALiBi", [](Problem& p) { p.alibi = true; }},
      {"negative softmax scales", [](Problem& p) { p.negative_scale = true; }},
      {"sink tokens below a window", [](Problem& p) { p.mask.window_left = 9, p.mask.sink_tokens = 4; }}};
  for (const Case& c : cases) {
    Problem p{QueryType::bf16, KvType::same, 128, 128, {}};
    c.change(p);
    EXPECT_EQ(refusal(p, KernelKind::decode), "the sm90 decode kernels have no " + std::string(c.what));
    EXPECT_EQ(refusal(p, KernelKind::extend), "the sm90 prefill kernels have no " + std::string(c.what));
  }
}

TEST(Sm90Select, RefusesTypesAndSizesWithWhatItTakes) {
  const std::string sizes = "64, 96, 128, 192 with V of 128 and 256";
  for (const Size size : {Size{80, 80}, {72, 72}, {112, 112}, {160, 160}, {512, 512}, {0, 0}})
    for (const KernelKind kind : kKinds)
      EXPECT_EQ(refusal({QueryType::bf16, KvType::same, size.d, size.dv, {}}, kind),
                "head size is " + std::to_string(size.d) + "; the sm90 " +
                    (kind == KernelKind::decode ? "decode" : "prefill") + " kernels take " + sizes);
  EXPECT_EQ(refusal({QueryType::f16, KvType::same, 192, 192, {}}, KernelKind::extend),
            "head size is 192; the sm90 prefill kernels take " + sizes);
  EXPECT_EQ(refusal({QueryType::f16, KvType::same, 128, 64, {}}, KernelKind::decode),
            "head size is 128 with V of 64; the sm90 decode kernels take " + sizes);
  EXPECT_EQ(refusal({QueryType::f32, KvType::same, 128, 128, {}}, KernelKind::extend_small),
            "queries are fp32; the sm90 prefill kernels take fp16 and bf16");
  for (const KernelKind kind : kKinds) {
    const std::string who = kind == KernelKind::decode ? "decode" : "prefill";
    for (const KvType kv : {KvType::f16, KvType::bf16, KvType::f32})
      EXPECT_EQ(refusal({QueryType::bf16, kv, 128, 128, {}}, kind),
                "the sm90 " + who + " kernels read no KV cache of another type than the queries'");
  }
}

}  // namespace
}  // namespace fovea::cuda::sm90
