#include "engine/memory_bill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fovea {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMiB = 1 << 20, kGiB = 1 << 30;

/// A GPU of 80 GiB of which 72 may be taken and 1 is taken, and a model of 16 GiB.
GpuBill bill() {
  GpuBill b;
  b.total = 80 * kGiB;
  b.taken = 1 * kGiB;
  b.weights = 16 * kGiB;
  b.activations = 2 * kGiB;
  b.workspace = 512 * kMiB;
  b.logits = 256 * kMiB;
  b.step_arrays = 64 * kMiB;
  b.sampler = 128 * kMiB;
  b.graphs = 64 * kMiB;
  return b;
}

/// Pages of 2 MiB and 16 tokens.
GpuKv kv() {
  GpuKv k;
  k.bytes_per_page = 2 * kMiB;
  k.page_size = 16;
  k.sequence_pages = 8192;  // 16 GiB
  k.max_running = 256;
  k.max_batched_tokens = 8192;
  k.max_seq_len = 131072;
  return k;
}

std::string refusal(const GpuBill& b, const GpuKv& k) {
  const auto pages = gpu_pages(b, k);
  EXPECT_FALSE(pages.ok());
  if (pages.ok()) return "";
  EXPECT_EQ(pages.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(pages.error().message, Not(HasSubstr("\n")));
  return pages.error().message;
}

TEST(MemoryBill, ThePartsAddUp) {
  EXPECT_EQ(bill().budget(), 71 * kGiB);
  EXPECT_EQ(bill().without_kv(), 19 * kGiB);
  EXPECT_EQ(bill().left(), 52 * kGiB);
  int64_t sum = 0;
  for (const MemoryPart& part : memory_parts(bill(), 5 * kGiB))
    sum += part.bytes;
  EXPECT_EQ(sum, (19 + 5 + 1) * kGiB);
}

TEST(MemoryBill, TheKvCacheTakesWhatIsLeft) {
  EXPECT_EQ(*gpu_pages(bill(), kv()), 26 * 1024);
  GpuKv few = kv();
  few.max_running = 2;
  EXPECT_EQ(*gpu_pages(bill(), few), 2 * 8192);  // more than they can use
  few.num_pages = 20000;
  EXPECT_EQ(*gpu_pages(bill(), few), 20000);
}

TEST(MemoryBill, RefusalsNameWhatToLower) {
  GpuBill large = bill();
  large.weights = 75 * kGiB;
  EXPECT_THAT(refusal(large, kv()),
              AllOf(HasSubstr("the weights need 75.00 GiB"),
                    HasSubstr("leaves 71.00 GiB of the GPU's 80.00 GiB"), HasSubstr("from 0.90 to 0.95")));
  large.weights = 200 * kGiB;
  EXPECT_THAT(refusal(large, kv()), AllOf(HasSubstr("use a smaller model"), Not(HasSubstr("raise"))));

  GpuKv many = kv();
  many.num_pages = 30000;
  EXPECT_THAT(refusal(bill(), many), AllOf(HasSubstr("lower --num-pages to 26624"), HasSubstr("raise")));
  many.num_pages = 100;
  EXPECT_THAT(refusal(bill(), many), HasSubstr("raise --num-pages to 8192"));

  GpuBill tight = bill();
  tight.weights = 60 * kGiB;  // 8 GiB are left
  EXPECT_THAT(refusal(tight, kv()),
              AllOf(HasSubstr("of the longest length (131072 tokens) needs 16.00 GiB"),
                    HasSubstr("lower --max-model-len to 65536"), Not(HasSubstr("raise"))));
}

TEST(MemoryBill, SlotsOfAdaptersAreAPartAndCanBeLowered) {
  GpuBill slots = bill();
  EXPECT_EQ(memory_parts(slots, 0).size(), 9u);
  slots.lora = 40 * kGiB;  // 12 GiB are left, and the longest sequence needs 16
  EXPECT_EQ(memory_parts(slots, 0).back().name, "LoRA adapters");
  EXPECT_EQ(memory_parts(slots, 0).back().bytes, 40 * kGiB);
  EXPECT_THAT(refusal(slots, kv()), AllOf(HasSubstr("the slots of LoRA adapters need 40.00 GiB"),
                                          HasSubstr("lower --max-loras or --max-lora-rank")));
  slots.lora = 30 * kGiB;
  EXPECT_EQ(*gpu_pages(slots, kv()), 11 * 1024);
}

TEST(MemoryBill, ActivationsShrinkWithTheTokensOfAStep) {
  GpuBill wide = bill();
  wide.weights = 16 * kGiB;
  wide.activations = 60 * kGiB;
  GpuKv short_ones = kv();
  short_ones.sequence_pages = 512;  // 1 GiB
  const std::string text = refusal(wide, short_ones);
  EXPECT_THAT(text, HasSubstr("lower --max-num-batched-tokens to 7236"));
  wide.activations = wide.activations * 7236 / 8192;
  EXPECT_TRUE(gpu_pages(wide, short_ones).ok());
}

TEST(MemoryBill, Sizes) {
  EXPECT_EQ(memory_text(0), "0 KiB");
  EXPECT_EQ(memory_text(9 * kMiB), "9216 KiB");
  EXPECT_EQ(memory_text(45 * kMiB), "45 MiB");
  EXPECT_EQ(memory_text(kGiB + kGiB / 4), "1.25 GiB");
}

}  // namespace
}  // namespace fovea
