// Refusals before any CUDA call. Arrays are never read, so their addresses are fake.
#include "backends/cuda/step_check.h"
#include "fovea/result.h"

#include <gmock/gmock.h>

#include <cmath>

namespace fovea::cuda {
namespace {

using ::testing::HasSubstr;

template <class T>
std::span<const T> fake(size_t count, uintptr_t address = 0x1000) {
  return {reinterpret_cast<const T*>(address), count};
}

struct Case {
  AttentionSpec spec;
  AttentionLimits limits{4, 8, 4000, 1000};
  BatchMeta meta;
  int page_size = 16;

  Case() {
    spec.num_heads = 8;
    spec.num_kv_heads = 2;
    spec.head_dim = spec.v_head_dim = 64;
    spec.dtype = DType::bf16;
    meta.tokens = 5;
    meta.q_offsets = fake<int32_t>(4);
    meta.kv_lens = fake<int32_t>(3);
    meta.page_table = fake<int32_t>(30);
    meta.page_table_stride = 10;
  }
  std::string error() const {
    const Status status = check_step(spec, limits, meta, page_size);
    return status.ok() ? "" : status.error().message;
  }
};

template <class F>
std::string step_error(F change) {
  Case c;
  change(c);
  return c.error();
}

TEST(CudaStepCheck, SizesThatTheHostKnows) {
  EXPECT_EQ(step_error([](Case&) {}), "");
  EXPECT_EQ(step_error([](Case& c) { c.meta = {}, c.meta.tokens = 0; }), "");
  EXPECT_THAT(step_error([](Case& c) { c.meta.tokens = -1; }), HasSubstr("BatchMeta::tokens is not given"));
  EXPECT_THAT(step_error([](Case& c) { c.meta.tokens = 9; }),
              HasSubstr("9 query rows exceeds the limit of 8"));
  EXPECT_THAT(step_error([](Case& c) { c.limits.max_seqs = 2; }),
              HasSubstr("3 sequences exceeds the limit of 2"));
  EXPECT_THAT(step_error([](Case& c) { c.meta.q_offsets = fake<int32_t>(3); }), HasSubstr("q_offsets has 3"));
  EXPECT_THAT(step_error([](Case& c) { c.meta.page_table = fake<int32_t>(29); }), HasSubstr("need 3 x 10"));
  EXPECT_THAT(step_error([](Case& c) { c.meta.page_table_stride = -1; }), HasSubstr("0 or more"));
  EXPECT_THAT(step_error([](Case& c) { c.meta.kv_indptr = fake<int32_t>(4); }),
              HasSubstr("give one of them"));
}

TEST(CudaStepCheck, ListsOfPagesAndRaggedKeys) {
  const auto lists = [](size_t offsets, std::span<const int32_t> indices, int page_size) {
    return step_error([&](Case& c) {
      c.meta.page_table = {};
      c.meta.page_table_stride = 0;
      c.meta.kv_indptr = fake<int32_t>(offsets);
      c.meta.kv_indices = indices;
      c.page_size = page_size;
    });
  };
  EXPECT_EQ(lists(4, fake<int32_t>(7), 16), "");
  EXPECT_EQ(lists(4, {}, 1), "");
  EXPECT_THAT(lists(3, fake<int32_t>(7), 16), HasSubstr("kv_indptr has 3"));
  EXPECT_THAT(lists(4, {}, 16), HasSubstr("the page size is 16"));
}

TEST(CudaStepCheck, MasksHaveTheirArrays) {
  EXPECT_THAT(step_error([](Case& c) { c.spec.mask.spans = true; }), HasSubstr("span_offsets has 0"));
  EXPECT_THAT(step_error([](Case& c) { c.spec.mask.packed = true; }), HasSubstr("packed_offsets has 0"));
  EXPECT_THAT(step_error([](Case& c) { c.spec.mask.tree = true; }), HasSubstr("tree_size is 0"));
  EXPECT_THAT(step_error([](Case& c) {
                c.spec.mask.tree = true;
                c.meta.tree_size = 3;
                c.meta.tree_bias = fake<float>(8);
              }),
              HasSubstr("has 8 entries; a tree_size of 3 needs 9"));
}

TEST(CudaStepCheck, NoSequenceIsLongerThanItsRowOfThePageTable) {
  Case c;
  AttentionLimits step = step_limits(c.spec.mask, c.limits, c.meta, 16);
  EXPECT_EQ(step.max_kv_len, 160);
  EXPECT_EQ(step.max_seqs, 3);
  EXPECT_EQ(step.max_tokens, 5);
  EXPECT_EQ(step.max_kv_tokens, 4000);
  c.meta.page_table_stride = int64_t{1} << 40;
  EXPECT_EQ(step_limits(c.spec.mask, c.limits, c.meta, 1 << 20).max_kv_len, 1000);
  c.meta.page_table_stride = 0;
  EXPECT_EQ(step_limits(c.spec.mask, c.limits, c.meta, 16).max_kv_len, 0);
  c.meta.kv_indptr = fake<int32_t>(4);
  c.meta.kv_indices = fake<int32_t>(7);
  EXPECT_EQ(step_limits(c.spec.mask, c.limits, c.meta, 16).max_kv_len, 112);
  c.meta.kv_indices = {};
  EXPECT_EQ(step_limits(c.spec.mask, c.limits, c.meta, 1).max_kv_len, 1000);
}

TEST(CudaStepCheck, WithoutAPackedMaskNoSequenceHasKeys) {
  Case c;
  c.spec.mask.causal = false;
  c.spec.mask.packed = true;
  EXPECT_EQ(step_limits(c.spec.mask, c.limits, c.meta, 16).max_kv_len, 0);
  c.meta.packed_mask = fake<uint8_t>(0);  // as in a capture: replays have more bytes at the same address
  EXPECT_EQ(step_limits(c.spec.mask, c.limits, c.meta, 16).max_kv_len, 160);
  c.meta.packed_mask = {};
  c.meta.kv_indptr = fake<int32_t>(4);  // ragged
  EXPECT_EQ(step_limits(c.spec.mask, c.limits, c.meta, 1).max_kv_len, 0);
}

std::string layer_error(void (*change)(AttentionArgs&), bool whole_loads = true) {
  const Case c;
  AttentionArgs args;
  args.q = fake<char>(1).data();
  args.out = reinterpret_cast<void*>(0x2000);
  args.q_row_stride = args.out_row_stride = 512;
  args.kv.k = args.kv.v = fake<char>(1).data();
  args.kv.dtype = KvCacheDType::bfloat16;
  args.kv.k_page_stride = args.kv.v_page_stride = 2048;
  args.kv.k_slot_stride = args.kv.v_slot_stride = 128;
  args.kv.k_head_stride = args.kv.v_head_stride = 64;
  change(args);
  const Status status = check_layer(c.spec, args, 6, whole_loads);
  return status.ok() ? "" : status.error().message;
}

TEST(CudaLayerCheck, TensorsOfThePlan) {
  EXPECT_EQ(layer_error([](AttentionArgs&) {}), "");
  EXPECT_THAT(layer_error([](AttentionArgs& a) { a.kv.dtype = KvCacheDType::fp8_e4m3; }),
              HasSubstr("the cache has dtype fp8_e4m3; the step was planned for bfloat16"));
  EXPECT_THAT(layer_error([](AttentionArgs& a) { a.q = nullptr; }), HasSubstr("AttentionArgs::q is null"));
  EXPECT_THAT(layer_error([](AttentionArgs& a) { a.kv.v = nullptr; }), HasSubstr("kv.v is null"));
  EXPECT_THAT(layer_error([](AttentionArgs& a) { a.out_row_stride = 504; }),
              HasSubstr("out has a row stride of 504 and a head stride of 64 elements"));
  EXPECT_EQ(layer_error([](AttentionArgs& a) { a.q_row_stride = 0; }), "");  // an expanded view
  EXPECT_THAT(layer_error([](AttentionArgs& a) { a.out_row_stride = 0; }), HasSubstr("overlap"));
  EXPECT_THAT(layer_error([](AttentionArgs& a) { a.q_row_stride = -512; }), HasSubstr("stride of -512"));
  EXPECT_THAT(layer_error([](AttentionArgs& a) { a.q_head_stride = int64_t{1} << 31; }), HasSubstr("2^31"));
  EXPECT_THAT(layer_error([](AttentionArgs& a) { a.q_head_stride = 68; }),
              HasSubstr("q has a stride of 68 elements"));
  EXPECT_THAT(layer_error([](AttentionArgs& a) { a.q = static_cast<const char*>(a.q) + 8; }),
              HasSubstr("q is not aligned to 16 bytes"));
  EXPECT_THAT(layer_error([](AttentionArgs& a) { a.kv.k_slot_stride = 132; }),
              HasSubstr("kv.k has a stride of 132 elements"));
  EXPECT_EQ(layer_error([](AttentionArgs& a) { a.kv.k_slot_stride = 132; }, false), "");
  EXPECT_THAT(layer_error([](AttentionArgs& a) { a.kv.v_head_stride = -64; }), HasSubstr("stride of -64"));
  EXPECT_EQ(layer_error([](AttentionArgs& a) { a.kv.k_page_stride = a.kv.v_head_stride = 0; }), "");
  EXPECT_THAT(layer_error([](AttentionArgs& a) { a.kv.k_scale = -1; }), HasSubstr("k_scale"));
  EXPECT_THAT(layer_error([](AttentionArgs& a) { a.kv.v_scale = NAN; }), HasSubstr("v_scale"));
}

TEST(CudaLayerCheck, PagesOfPackedElements) {
  static constexpr auto pack = [](AttentionArgs& a) {  // [pages, 2, 8, 16, 8] and [pages, 2, 64, 16]
    a.kv.form = KvForm::x_packed;
    a.kv.k_head_stride = a.kv.v_head_stride = 1024;
    a.kv.k_slot_stride = 8, a.kv.k_chunk_stride = 128;
    a.kv.v_slot_stride = 1, a.kv.v_dim_stride = 16;
  };
  EXPECT_EQ(layer_error(pack), "");
  EXPECT_THAT(layer_error([](AttentionArgs& a) { pack(a), a.kv.v_slot_stride = 2; }),
              HasSubstr("kv.v has slots 2 elements apart"));
  EXPECT_THAT(layer_error([](AttentionArgs& a) { pack(a), a.kv.v_dim_stride = 12; }),
              HasSubstr("kv.v has a stride of 12 elements"));
  EXPECT_THAT(layer_error([](AttentionArgs& a) { pack(a), a.kv.k_chunk_stride = 0; }),
              HasSubstr("strides of 0 between chunks of K"));
}

/// [B, H, S, D] viewed as [B, S, H, D], with two sequences of three rows and eight heads of 64.
void transpose(int64_t& row, int64_t& head, int& block_rows, int64_t& block) {
  row = 64, head = 3 * 64, block_rows = 3, block = 8 * 3 * 64;
}

TEST(CudaLayerCheck, TransposedViews) {
  EXPECT_EQ(layer_error([](AttentionArgs& a) {
              transpose(a.q_row_stride, a.q_head_stride, a.q_block_rows, a.q_block_stride);
              transpose(a.out_row_stride, a.out_head_stride, a.out_block_rows, a.out_block_stride);
            }),
            "");
  EXPECT_THAT(layer_error([](AttentionArgs& a) {  // heads two rows apart
                transpose(a.out_row_stride, a.out_head_stride, a.out_block_rows, a.out_block_stride);
                a.out_head_stride = 2 * 64;
              }),
              HasSubstr("overlap"));
  EXPECT_THAT(layer_error([](AttentionArgs& a) {  // overlapping sequences
                transpose(a.out_row_stride, a.out_head_stride, a.out_block_rows, a.out_block_stride);
                a.out_block_stride = 0;
              }),
              HasSubstr("overlap"));
}

}  // namespace
}  // namespace fovea::cuda
