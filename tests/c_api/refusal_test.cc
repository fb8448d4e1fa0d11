// Each invalid argument is refused with its name, the value given and the values allowed, before anything
// runs: outputs stay poisoned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <thread>

#include "tensors.h"

namespace fovea {
namespace {

using ::testing::HasSubstr;

// DLPack's DLTensor of version 0.2 and later, on a machine of 64-bit pointers.
static_assert(offsetof(fovea_tensor, data) == 0 && offsetof(fovea_tensor, device) == 8);
static_assert(offsetof(fovea_tensor, ndim) == 16 && offsetof(fovea_tensor, dtype) == 20);
static_assert(offsetof(fovea_tensor, shape) == 24 && offsetof(fovea_tensor, strides) == 32);
static_assert(offsetof(fovea_tensor, byte_offset) == 40 && sizeof(fovea_tensor) == 48);
static_assert(offsetof(fovea_device, type) == 0 && offsetof(fovea_device, id) == 4 &&
              sizeof(fovea_device) == 8);
static_assert(offsetof(fovea_dtype, code) == 0 && offsetof(fovea_dtype, bits) == 1 &&
              offsetof(fovea_dtype, lanes) == 2 && sizeof(fovea_dtype) == 4);
// Structs of ABI 1: they may grow, and no field may move.
static_assert(offsetof(fovea_attention_spec, kv_dtype) == 32 &&
              offsetof(fovea_attention_spec, per_head_scales) == 96);
static_assert(offsetof(fovea_limits, max_kv_tokens) == 16 && offsetof(fovea_limits, tune_for) == 32);
static_assert(offsetof(fovea_step, q_offsets) == 16 && offsetof(fovea_step, num_pages) == 104);
static_assert(offsetof(fovea_layer, k_scale) == 64 && offsetof(fovea_layer, v_scales) == 80);
static_assert(offsetof(fovea_append_args, slots) == 88 && sizeof(fovea_append_args) == 176);

constexpr int kSeqs = 2, kTokens = 3, kHeads = 4, kKvHeads = 2, kDim = 16, kVDim = 8, kPage = 4, kPages = 6;

std::string last_error(fovea_status status) {
  return status == FOVEA_OK ? "accepted" : fovea_last_error();
}

fovea_attention_spec make_spec() {
  fovea_attention_spec spec;
  fovea_attention_spec_init(&spec);
  spec.num_heads = kHeads, spec.num_kv_heads = kKvHeads, spec.head_dim = kDim, spec.v_head_dim = kVDim;
  spec.dtype = kF32;
  spec.page_size = kPage;
  return spec;
}

/// 64 bytes, 64-byte aligned.
HostTensor aligned_bytes() {
  HostTensor bytes(kU8, {128});
  bytes.shape[0] = 64;
  bytes.t.byte_offset = (64 - reinterpret_cast<uintptr_t>(bytes.t.data) % 64) % 64;
  return bytes;
}

/// All tensors of a valid step of TORCH_NATIVE; each test makes one of them invalid.
struct Step {
  fovea_attention_spec spec = make_spec();
  fovea_limits limits = {sizeof(fovea_limits), kSeqs, 8, 32, 16, 0, FOVEA_TUNE_FOR_LIMITS};
  const char* backend = "TORCH_NATIVE";
  fovea_device device = {FOVEA_CPU, 0};
  uint32_t flags = 0;

  HostTensor q_offsets = ints({0, 1, 3}), kv_lens = ints({5, 2});
  HostTensor page_table = HostTensor(kI32, {2, 2}, {3, 5, 0, -1});
  fovea_step step = {
      sizeof(fovea_step), FOVEA_PREFILL, kTokens, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, 0, 0, 0};
  HostTensor workspace = HostTensor(kU8, {64});
  bool give_workspace = false;

  HostTensor q = HostTensor(kF32, {kTokens, kHeads, kDim}), out = HostTensor(kF32, {kTokens, kHeads, kVDim}),
             lse = HostTensor(kF32, {kTokens, kHeads}), k = HostTensor(kF32, {kPages, kPage, kKvHeads, kDim}),
             v = HostTensor(kF32, {kPages, kPage, kKvHeads, kVDim}), other = HostTensor(kF32, {kHeads});
  fovea_layer layer = {sizeof(fovea_layer), {}, {}, {}, {}, {}, {}, {}, 0, 0, {}, {}, {}};

  Step() {
    std::memset(out.t.data, 0xa5, out.bytes());
    step.q_offsets = &q_offsets.t, step.kv_lens = &kv_lens.t, step.page_table = &page_table.t;
    layer.q = &q.t, layer.out = &out.t, layer.lse = &lse.t, layer.k = &k.t, layer.v = &v.t;
  }
  std::string run() {
    for (HostTensor* t : {&q_offsets, &kv_lens, &page_table, &workspace, &q, &out, &lse, &k, &v, &other})
      t->get();
    fovea_attention* attention = nullptr;
    size_t bytes = 0;
    std::string error =
        last_error(fovea_attention_create(&spec, &limits, backend, device, flags, &bytes, &attention));
    if (attention == nullptr) return error;
    fovea_status status =
        fovea_attention_plan(attention, &step, give_workspace ? &workspace.t : nullptr, nullptr);
    if (status == FOVEA_OK) status = fovea_attention_run(attention, &layer, nullptr);
    error = last_error(status);
    fovea_attention_destroy(attention);
    if (error == "accepted") return error;
    for (size_t i = 0; i < out.bytes(); ++i)
      EXPECT_EQ(out.as<unsigned char>()[i], 0xa5) << error;
    return error;
  }
};

TEST(CApi, TakesAGoodStep) {
  EXPECT_EQ(Step().run(), "accepted");
  Step wide;  // rows apart, heads of a page first, int64, pinned memory, no LSE, a workspace
  wide.q = HostTensor(kF32, {kTokens, 2 * kHeads, kDim});
  wide.q.shape[1] = kHeads;
  wide.k = HostTensor(kF32, {kPages, kKvHeads, kPage, kDim});
  std::swap(wide.k.shape[1], wide.k.shape[2]), std::swap(wide.k.strides[1], wide.k.strides[2]);
  wide.kv_lens = longs({5, 2});
  wide.page_table = HostTensor(kI64, {2, 2}, std::initializer_list<int64_t>{3, 5, 0, int64_t{1} << 40});
  wide.q.t.device.type = FOVEA_CUDA_HOST;
  wide.layer.lse = nullptr;
  wide.give_workspace = true;
  wide.workspace = aligned_bytes();
  EXPECT_EQ(wide.run(), "accepted");
  Step lists;
  HostTensor indptr = ints({0, 2, 3}), indices = longs({3, 5, 0});
  lists.step.page_table = nullptr;
  lists.step.kv_indptr = indptr.get(), lists.step.kv_indices = indices.get();
  EXPECT_EQ(lists.run(), "accepted");
  Step ragged;
  ragged.spec.page_size = 1;
  ragged.k = HostTensor(kF32, {7, kKvHeads, kDim}), ragged.v = HostTensor(kF32, {7, kKvHeads, kVDim});
  HostTensor rows = ints({0, 5, 7});
  ragged.step.page_table = nullptr;
  ragged.step.kv_indptr = rows.get();
  EXPECT_EQ(ragged.run(), "accepted");
  Step strided;  // columns of index tables, rows that all sequences share, [B, S, H, D] and [H, S, D]
  strided.kv_lens = ints({5, 99, 2, 99}), strided.kv_lens.shape = {2}, strided.kv_lens.strides = {2};
  strided.q_offsets = longs({0, 9, 1, 9, 3}), strided.q_offsets.shape = {3}, strided.q_offsets.strides = {2};
  strided.page_table = ints({3, 5}), strided.page_table.shape = {2, 2}, strided.page_table.strides = {0, 1};
  strided.q.shape = {3, 1, kHeads, kDim}, strided.q.strides = {kDim, 0, 3 * kDim, 1};
  strided.out.strides = {kVDim, 3 * kVDim, 1};
  strided.step.num_pages = kPages;
  strided.limits.tune_for = FOVEA_TUNE_FOR_MANY;
  EXPECT_EQ(strided.run(), "accepted");
  Step expanded;  // inputs may have strides of 0
  expanded.q.strides = {0, 0, 1};
  expanded.k.strides = expanded.v.strides = {0, 0, 0, 1};
  EXPECT_EQ(expanded.run(), "accepted");
}

TEST(CApi, TakesEveryKindOfCacheAndMask) {
  Step encoder;
  encoder.spec.encoder = 1, encoder.spec.causal = 0, encoder.spec.page_size = 1;
  encoder.kv_lens = ints({1, 2});
  encoder.step.page_table = nullptr, encoder.step.kv_indptr = &encoder.q_offsets.t;
  encoder.k = HostTensor(kF32, {kTokens, kKvHeads, kDim}),
  encoder.v = HostTensor(kF32, {kTokens, kKvHeads, kVDim});
  EXPECT_EQ(encoder.run(), "accepted");
  Step fp8;
  fp8.spec.kv_dtype = "fp8_e4m3";
  fp8.k = HostTensor(kU8, {kPages, kPage, kKvHeads, kDim}),
  fp8.v = HostTensor(kE4m3, {kPages, kPage, kKvHeads, kVDim});
  fp8.v.t.dtype = kU8;
  fp8.layer.k_scale = 0.5f;
  EXPECT_EQ(fp8.run(), "accepted");
  Step int8;
  int8.spec.kv_dtype = "int8_per_token_head";
  int8.k = HostTensor(kI8, {kPages, kPage, kKvHeads, kDim}),
  int8.v = HostTensor(kI8, {kPages, kPage, kKvHeads, kVDim});
  HostTensor scales(kF32, {kPages, kPage, kKvHeads});
  int8.layer.k_scales = int8.layer.v_scales = scales.get();
  EXPECT_EQ(int8.run(), "accepted");
  Step packed;
  packed.spec.kv_x_packed = 1;
  packed.k = HostTensor(kF32, {kPages, kKvHeads, kDim / 4, kPage, 4}),
  packed.v = HostTensor(kF32, {kPages, kKvHeads, kVDim, kPage});
  EXPECT_EQ(packed.run(), "accepted");
  Step shuffled;
  shuffled.spec.kv_shuffle = 1;
  shuffled.k = HostTensor(kF32, {kPages, kKvHeads, kDim / 4, kPage, 4}),
  shuffled.v = HostTensor(kF32, {kPages, kKvHeads, kPage / 4, kVDim, 4});
  EXPECT_EQ(shuffled.run(), "accepted");
  Step pool;  // tokens in slots of int32
  HostTensor of_sequences = ints({0, 5, 7}), slots = ints({19, 0, 7, 8, 3, 4, 12});
  pool.spec.page_size = 1;
  pool.k = HostTensor(kF32, {20, kKvHeads, kDim}), pool.v = HostTensor(kF32, {20, kKvHeads, kVDim});
  pool.step.page_table = nullptr;
  pool.step.kv_indptr = of_sequences.get(), pool.step.kv_indices = slots.get();
  EXPECT_EQ(pool.run(), "accepted");
  for (const char* backend : {"TORCH_NATIVE", "CPU_ATTN"}) {
    Step by_page;  // a scale of each page and head
    by_page.backend = backend;
    by_page.spec.kv_dtype = "fp8_e4m3", by_page.spec.per_head_scales = 1;
    by_page.spec.v_head_dim = kDim;
    by_page.k = HostTensor(kU8, {kPages, kPage, kKvHeads, kDim}),
    by_page.v = HostTensor(kU8, {kPages, kPage, kKvHeads, kDim});
    by_page.out = HostTensor(kF32, {kTokens, kHeads, kDim});
    HostTensor of_pages(kF32, {kPages, 1, kKvHeads});
    of_pages.shape[1] = kPage, of_pages.strides[1] = 0;
    by_page.layer.k_scales = by_page.layer.v_scales = of_pages.get();
    EXPECT_EQ(by_page.run(), "accepted");
    of_pages.shape[1] = kPage + 1;
    of_pages.get();
    std::memset(by_page.out.t.data, 0xa5, by_page.out.bytes());
    EXPECT_THAT(by_page.run(), HasSubstr("k_scales has shape [6, 5, 2]"));
  }
  Step masks;
  masks.spec.spans = masks.spec.tree = masks.spec.has_sink = masks.spec.has_alibi = 1;
  HostTensor spans(kI32, {1, 2}, {0, 1}), span_offsets = longs({0, 1, 1}), bias(kF32, {2, 2});
  masks.step.spans = spans.get(), masks.step.span_offsets = span_offsets.get(),
  masks.step.tree_bias = bias.get();
  masks.layer.sinks = masks.layer.alibi_slopes = &masks.other.t;
  EXPECT_EQ(masks.run(), "accepted");
  Step bits;
  bits.spec.packed_mask = 1, bits.spec.causal = 0;
  HostTensor mask(kU8, {2}), mask_offsets = longs({0, 1, 2});
  bits.step.packed_mask = mask.get(), bits.step.packed_offsets = mask_offsets.get();
  EXPECT_EQ(bits.run(), "accepted");
  Step none;  // no sequence, no memory
  none.q_offsets = ints({0}), none.kv_lens = ints({});
  none.kv_lens.t.data = nullptr;
  none.page_table = HostTensor(kI32, {0, 2});
  none.step.num_tokens = 0;
  none.q.shape[0] = none.out.shape[0] = none.lse.shape[0] = 0;
  none.q.t.data = nullptr;
  EXPECT_EQ(none.run(), "accepted");
}

struct Case {
  const char* text;
  std::function<void(Step&)> spoil;
};

TEST(CApi, RefusesWrongTensors) {
  const Case cases[] = {
      {"fovea_attention_run: q is null; it is needed", [](Step& s) { s.layer.q = nullptr; }},
      {"q has 6 dimensions; 0 to 5 are possible", [](Step& s) { s.q.shape = {3, 4, 16, 1, 1, 1}; }},
      {"q has shape [3, 64]; it must be [Tq = 3, Hq = 4, D = 16]", [](Step& s) { s.q.shape = {3, 64}; }},
      {"q has shape [3, 5, 16]; it must be [Tq = 3, Hq = 4, D = 16]",
       [](Step& s) { s.q.shape = {3, 5, 16}; }},
      {"q has shape [-3, 4, 16]; sizes must not be negative", [](Step& s) { s.q.shape[0] = -3; }},
      {"q has shape [3, 4611686018427387904, 16], which exceeds 64-bit sizes",
       [](Step& s) { s.q.shape[1] = int64_t{1} << 62; }},
      {"q has strides [4611686018427387904, 16, 1] for shape [3, 4, 16], which exceeds 64-bit sizes",
       [](Step& s) { s.q.strides[0] = int64_t{1} << 62; }},
      {"q has strides [-64, 16, 1]; they must not be negative", [](Step& s) { s.q.strides[0] = -64; }},
      {"q has strides [64, 16, 2] for shape [3, 4, 16]", [](Step& s) { s.q.strides[2] = 2; }},
      {"out has strides [0, 8, 1] for shape [3, 4, 8]; it is written to, and its elements overlap",
       [](Step& s) { s.out.strides[0] = 0; }},
      {"out has strides [32, 0, 1] for shape [3, 4, 8]; it is written to",
       [](Step& s) { s.out.strides[1] = 0; }},
      {"out has strides [32, 7, 1] for shape [3, 4, 8]; it is written to",
       [](Step& s) { s.out.strides[1] = 7; }},
      {"q has shape [3, 1, 4, 15]; it must be [B, S, Hq = 4, D = 16]",
       [](Step& s) { s.q.shape = {3, 1, 4, 15}, s.q.strides = {64, 64, 16, 1}; }},
      {"q has shape [2, 1, 4, 16] with 2 rows; the step has 3",
       [](Step& s) { s.q.shape = {2, 1, 4, 16}, s.q.strides = {64, 64, 16, 1}; }},
      {"q is on cuda:1; it must be on cpu", [](Step& s) { s.q.t.device = {FOVEA_CUDA, 1}; }},
      {"q is on DLPack device type 7; it must be on cpu", [](Step& s) { s.q.t.device = {7, 0}; }},
      {"q has dtype float16; it must be float32", [](Step& s) { s.q.t.dtype = kF16; }},
      {"q has dtype DLPack code 2 of 64 bits and 1 lanes; it must be float32",
       [](Step& s) { s.q.t.dtype = {FOVEA_FLOAT, 64, 1}; }},
      {"q has dtype DLPack code 2 of 32 bits and 4 lanes", [](Step& s) { s.q.t.dtype.lanes = 4; }},
      {"q begins at an address that is 2 past a multiple of 4 bytes", [](Step& s) { s.q.t.byte_offset = 2; }},
      {"q has a null pointer for shape [3, 4, 16]", [](Step& s) { s.q.t.data = nullptr; }},
      {"out has shape [2, 4, 8]; it must be [Tq = 3, Hq = 4, Dv = 8]", [](Step& s) { s.out.shape[0] = 2; }},
      {"out is null", [](Step& s) { s.layer.out = nullptr; }},
      {"lse has dtype float16; it must be float32", [](Step& s) { s.lse.t.dtype = kF16; }},
      {"lse has strides [5, 1] for shape [3, 4]; it must be dense", [](Step& s) { s.lse.strides[0] = 5; }},
      {"sinks is given; the spec does not have has_sink", [](Step& s) { s.layer.sinks = &s.other.t; }},
      {"sinks is null; the spec has has_sink", [](Step& s) { s.spec.has_sink = 1; }},
      {"alibi_slopes is null; the spec has has_alibi", [](Step& s) { s.spec.has_alibi = 1; }},
      {"sinks has shape [3]; it must be [Hq = 4]",
       [](Step& s) { s.spec.has_sink = 1, s.layer.sinks = &s.other.t, s.other.shape[0] = 3; }},
      {"k has shape [6, 8, 2, 16] with page size 8; it must be 4",
       [](Step& s) { s.k = HostTensor(kF32, {6, 8, 2, 16}); }},
      {"v has shape [5, 4, 2, 8] with pages 5; it must be 6", [](Step& s) { s.v.shape[0] = 5; }},
      {"v has shape [6, 4, 2, 7] with head size 7; it must be 8", [](Step& s) { s.v.shape[3] = 7; }},
      {"k has shape [24, 2, 16]; it must be [pages, page size, Hkv, D]",
       [](Step& s) { s.k.shape = {24, 2, 16}; }},
      {"k has strides [128, 32, 16, 2]; its last dimension must be dense",
       [](Step& s) { s.k.strides[3] = 2; }},
      {"v has dtype float16; it must be float32", [](Step& s) { s.v.t.dtype = kF16; }},
      {"k has shape [6, 4, 2, 16]; it must be x-packed [pages, Hkv, D / x, page size, x] with x = 4",
       [](Step& s) { s.spec.kv_x_packed = 1; }},
      {"k_scales is given; a cache of float32 takes none", [](Step& s) { s.layer.k_scales = &s.other.t; }},
      {"k_scale is -1.000000; it must be a positive number, or 0 for 1",
       [](Step& s) { s.layer.k_scale = -1; }},
      {"k has dtype float32; it must be int8", [](Step& s) { s.spec.kv_dtype = "int8_per_token_head"; }},
      {"k has dtype float32; it must be float8_e4m3fn or uint8", [](Step& s) { s.spec.kv_dtype = "fp8"; }},
      {"page_table[0, 1] is 5; k has 5 pages", [](Step& s) { s.k.shape[0] = s.v.shape[0] = 5; }},
      {"page_table[1, 0] is -3; k has 6 pages", [](Step& s) { s.page_table.as<int32_t>()[2] = -3; }},
      {"fovea_layer->size is 0; it must be sizeof(fovea_layer), 96", [](Step& s) { s.layer.size = 0; }},
  };
  for (const Case& c : cases) {
    Step s;
    c.spoil(s);
    EXPECT_THAT(s.run(), HasSubstr(c.text));
  }
}

TEST(CApi, RefusesWrongSteps) {
  HostTensor offsets = ints({0, 2, 3}), lists = ints({3, 5, 0}), bias(kF32, {2, 3});
  const Case cases[] = {
      {"fovea_attention_plan: phase is 2; it must be 0 (prefill) or 1 (decode)",
       [](Step& s) { s.step.phase = 2; }},
      {"past_kv_ready is 2; it must be 0 or 1", [](Step& s) { s.step.past_kv_ready = 2; }},
      {"num_tokens is 9; it must be 0 to max_tokens, 8", [](Step& s) { s.step.num_tokens = 9; }},
      {"num_tokens is 2; q_offsets ends with 3", [](Step& s) { s.step.num_tokens = 2; }},
      {"kv_lens is null; it is needed", [](Step& s) { s.step.kv_lens = nullptr; }},
      {"kv_lens has 3 sequences; max_seqs is 2", [](Step& s) { s.kv_lens = ints({1, 2, 3}); }},
      {"kv_lens has dtype uint8; it must be int32 or int64", [](Step& s) { s.kv_lens.t.dtype = kU8; }},
      {"sequence 1 has 17 keys; the limit is 16",  // every other length is read
       [](Step& s) { s.kv_lens = ints({1, 99, 17, 99}), s.kv_lens.shape = {2}, s.kv_lens.strides = {2}; }},
      {"num_pages is -1; it must be 0", [](Step& s) { s.step.num_pages = -1; }},
      {"page 1 of sequence 0 is 5; the cache has pages 0 to 4", [](Step& s) { s.step.num_pages = 5; }},
      {"tune_for is 3; it must be 0 to 2", [](Step& s) { s.limits.tune_for = 3; }},
      {"kv_lens[1] is 4294967298; it must fit 32 bits", [](Step& s) { s.kv_lens = longs({1, 4294967298}); }},
      {"q_offsets has shape [2]; it must be [B + 1 = 3]", [](Step& s) { s.q_offsets.shape = {2}; }},
      {"q_offsets decreases after entry 0", [](Step& s) { s.q_offsets = ints({4, 1, 3}); }},
      {"sequence 0 has 17 keys; the limit is 16", [](Step& s) { s.kv_lens = ints({17, 2}); }},
      {"the page table has no room for the 3 pages of sequence 0", [](Step& s) { s.kv_lens = ints({9, 2}); }},
      {"page_table[0, 1] is 7; k has 6 pages",  // every other entry is read
       [](Step& s) {
         s.page_table = HostTensor(kI32, {2, 4}, {3, 9, 7, 9, 0, 9, -1, 9});
         s.page_table.shape[1] = 2, s.page_table.strides[1] = 2;
       }},
      {"page_table has shape [1, 2]; it must be [B = 2, pages]",
       [](Step& s) { s.page_table.shape = {1, 2}; }},
      {"page_table and kv_indptr are null; give one of them", [](Step& s) { s.step.page_table = nullptr; }},
      {"page_table and kv_indptr are given; give one of them",
       [&](Step& s) { s.step.kv_indptr = offsets.get(); }},
      {"kv_indices is given without kv_indptr",
       [&](Step& s) { s.step.page_table = nullptr, s.step.kv_indices = lists.get(); }},
      {"kv_indices is null, so that keys are rows of a ragged tensor; that needs page_size 1 in the spec, "
       "which has 4",
       [&](Step& s) { s.step.page_table = nullptr, s.step.kv_indptr = offsets.get(); }},
      {"kv_lens[0] is 5; it must be 0 to max_kv_len, 16, and kv_indptr has 2 rows for it",
       [&](Step& s) { s.step.page_table = nullptr, s.step.kv_indptr = offsets.get(), s.spec.page_size = 1; }},
      {"spans is given; the spec does not have spans", [&](Step& s) { s.step.spans = bias.get(); }},
      {"span_offsets is null; the spec has spans",
       [&](Step& s) { s.spec.spans = 1, s.step.spans = bias.get(); }},
      {"packed_mask is null; the spec has packed_mask",
       [](Step& s) { s.spec.packed_mask = 1, s.spec.causal = 0; }},
      {"tree_bias has shape [2, 3]; it must be [n, n] with n from 1 to 32767",
       [&](Step& s) { s.spec.tree = 1, s.step.tree_bias = bias.get(); }},
      {"fovea_step->size is 90; it must be sizeof(fovea_step), 112 here and at least 96",
       [](Step& s) { s.step.size = 90; }},
      {"workspace has 64 bytes; the limits need ",
       [](Step& s) {
         s.backend = "CPU_ATTN", s.spec.v_head_dim = 16, s.give_workspace = true,
         s.workspace = aligned_bytes();
       }},
      {"workspace has dtype int8; it must be uint8",
       [](Step& s) { s.give_workspace = true, s.workspace.t.dtype = kI8; }},
      {"workspace begins at an address that is ",
       [](Step& s) {
         s.give_workspace = true;
         s.workspace.t.byte_offset = 1 + (64 - reinterpret_cast<uintptr_t>(s.workspace.t.data) % 64) % 64;
       }},
  };
  for (const Case& c : cases) {
    Step s;
    c.spoil(s);
    EXPECT_THAT(s.run(), HasSubstr(c.text));
  }
}

TEST(CApi, RefusesWrongObjects) {
  const Case cases[] = {
      {"fovea_attention_create: Unknown attention backend: 'NONE'", [](Step& s) { s.backend = "NONE"; }},
      {"Selected backend FLASHMLA is not valid for this configuration. Reason: ",
       [](Step& s) { s.backend = "FLASHMLA"; }},
      {"num_heads is 0; it must be 1 to 65536", [](Step& s) { s.spec.num_heads = 0; }},
      {"num_heads 4 must be a positive multiple of num_kv_heads 3", [](Step& s) { s.spec.num_kv_heads = 3; }},
      {"head_size not supported", [](Step& s) { s.spec.head_dim = 2000; }},
      {"page_size is 0; it must be 1 to 1048576", [](Step& s) { s.spec.page_size = 0; }},
      {"dtype has code 2, 64 bits and 1 lanes; it must be float32, float16 or bfloat16",
       [](Step& s) { s.spec.dtype.bits = 64; }},
      {"kv_dtype 'fp9' is unknown", [](Step& s) { s.spec.kv_dtype = "fp9"; }},
      {"kv_cache_dtype not supported", [](Step& s) { s.spec.kv_dtype = "nvfp4"; }},
      {"k_scales is null; it is needed", [](Step& s) { s.spec.per_head_scales = 1; }},
      {"causal is 1 with encoder", [](Step& s) { s.spec.encoder = 1; }},
      {"page_size is 4 with encoder", [](Step& s) { s.spec.encoder = 1, s.spec.causal = 0; }},
      {"max_seqs is -1; it must be 1 to 1048576", [](Step& s) { s.limits.max_seqs = -1; }},
      {"max_kv_tokens is 0; it must be 1 to", [](Step& s) { s.limits.max_kv_tokens = 0; }},
      {"flags is 6; known are 0 and FOVEA_CHECK_PAGES, 1", [](Step& s) { s.flags = 6; }},
      {"device is DLPack device type 10; it must be cpu (type 1) or cuda (type 2)",
       [](Step& s) { s.device = {10, 0}; }},
      {"device is pinned host memory; it must be cpu", [](Step& s) { s.device = {FOVEA_CUDA_HOST, 0}; }},
      {"fovea_attention_spec->size is 7", [](Step& s) { s.spec.size = 7; }},
      {"fovea_limits->size is 123456; it must be sizeof(fovea_limits), 40 here",
       [](Step& s) { s.limits.size = 123456; }},
  };
  for (const Case& c : cases) {
    Step s;
    c.spoil(s);
    EXPECT_THAT(s.run(), HasSubstr(c.text));
  }
  Step no_cuda;
  no_cuda.device = {FOVEA_CUDA, 0};
  if (fovea_cuda_built() == 0) {
    EXPECT_THAT(no_cuda.run(), HasSubstr("device is cuda, and this build has no CUDA code"));
  }
}

/// A struct of a newer header: additional fields that are zero are ignored.
TEST(CApi, TakesLongerStructsWhoseRestIsZero) {
  Step s;
  struct {
    fovea_limits limits;
    unsigned char rest[24];
  } longer = {s.limits, {}};
  longer.limits.size = sizeof(longer);
  fovea_attention* attention = nullptr;
  const fovea_device cpu = {FOVEA_CPU, 0};
  ASSERT_EQ(last_error(fovea_attention_create(&s.spec, &longer.limits, nullptr, cpu, 0, nullptr, &attention)),
            "accepted");
  fovea_attention_destroy(attention);
  longer.rest[7] = 1;
  EXPECT_EQ(fovea_attention_create(&s.spec, &longer.limits, nullptr, cpu, 0, nullptr, &attention),
            FOVEA_UNSUPPORTED);
  EXPECT_EQ(attention, nullptr);
  EXPECT_THAT(fovea_last_error(),
              HasSubstr("fovea_limits has 64 bytes with a field at byte 47 that this library, "
                        "whose struct has 40, does not know"));
}

TEST(CApi, RefusesCallsOutOfOrder) {
  Step s;
  const fovea_device cpu = {FOVEA_CPU, 0};
  for (HostTensor* t : {&s.q_offsets, &s.kv_lens, &s.page_table, &s.q, &s.out, &s.lse, &s.k, &s.v})
    t->get();
  EXPECT_THAT(last_error(fovea_attention_run(nullptr, &s.layer, nullptr)), HasSubstr("attention is null"));
  EXPECT_THAT(last_error(fovea_attention_create(&s.spec, &s.limits, nullptr, cpu, 0, nullptr, nullptr)),
              HasSubstr("out is null"));
  fovea_attention* attention = nullptr;
  ASSERT_EQ(last_error(fovea_attention_create(&s.spec, &s.limits, nullptr, cpu, 0, nullptr, &attention)),
            "accepted");
  EXPECT_THAT(last_error(fovea_attention_run(attention, &s.layer, nullptr)), HasSubstr("no step is planned"));
  EXPECT_THAT(last_error(fovea_attention_check(attention, 3, nullptr)), HasSubstr("no step is planned"));
  ASSERT_EQ(last_error(fovea_attention_plan(attention, &s.step, nullptr, nullptr)), "accepted");
  EXPECT_EQ(last_error(fovea_attention_check(attention, -1, nullptr)), "accepted");
  EXPECT_EQ(last_error(fovea_attention_check(attention, 6, nullptr)), "accepted");
  EXPECT_THAT(last_error(fovea_attention_check(attention, 4, nullptr)),
              HasSubstr("page_table[0, 1] is 5; k has 4 pages"));
  EXPECT_THAT(last_error(fovea_attention_check(attention, -2, nullptr)), HasSubstr("num_pages is -2"));
  EXPECT_THAT(last_error(fovea_attention_update_capture(attention, &s.step, nullptr)),
              HasSubstr("was not prepared for capture"));
  EXPECT_EQ(fovea_attention_prepare_capture(attention, &s.step, nullptr, nullptr), FOVEA_UNSUPPORTED);
  // A failed plan leaves no plan behind.
  EXPECT_THAT(last_error(fovea_attention_run(attention, &s.layer, nullptr)), HasSubstr("no step is planned"));
  EXPECT_STREQ(fovea_attention_backend(attention, 7), "");
  fovea_attention_destroy(attention);
}

TEST(CApi, RemembersErrorsByThread) {
  EXPECT_NE(fovea_attention_create(nullptr, nullptr, nullptr, {FOVEA_CPU, 0}, 0, nullptr, nullptr), FOVEA_OK);
  const std::string mine = fovea_last_error();
  EXPECT_THAT(mine, HasSubstr("out is null"));
  std::thread([] { EXPECT_STREQ(fovea_last_error(), ""); }).join();
  EXPECT_EQ(fovea_last_error(), mine);
}

/// A valid append into the cache of Step; each test makes one argument invalid.
struct Append {
  HostTensor q = HostTensor(kF32, {kTokens, kHeads, kDim}), q_out = HostTensor(kF32, {kTokens, kHeads, kDim}),
             k = HostTensor(kF32, {kTokens, kKvHeads, kDim}),
             v = HostTensor(kF32, {kTokens, kKvHeads, kVDim}),
             k_cache = HostTensor(kF32, {kPages, kPage, kKvHeads, kDim}),
             v_cache = HostTensor(kF32, {kPages, kPage, kKvHeads, kVDim}), slots = ints({0, 23, -1}),
             cos = HostTensor(kF32, {4, 4}), sin = HostTensor(kF32, {4, 4}), positions = longs({0, 3, 1}),
             norm = HostTensor(kF32, {kDim}), other = ints({0, 1, 3});
  fovea_append_args args = {};

  Append() {
    args.size = sizeof(args);
    args.q = &q.t, args.q_out = &q_out.t, args.k = &k.t, args.v = &v.t;
    args.k_cache = &k_cache.t, args.v_cache = &v_cache.t, args.slots = &slots.t;
    args.cos = &cos.t, args.sin = &sin.t, args.positions = &positions.t;
    args.q_norm = args.k_norm = &norm.t;
    std::memset(k_cache.t.data, 0xa5, k_cache.bytes());
  }
  std::string run() {
    for (HostTensor* t :
         {&q, &q_out, &k, &v, &k_cache, &v_cache, &slots, &cos, &sin, &positions, &norm, &other})
      t->get();
    const std::string error = last_error(fovea_append(&args, nullptr));
    if (error == "accepted") return error;
    for (size_t i = 0; i < k_cache.bytes(); ++i)
      EXPECT_EQ(k_cache.as<unsigned char>()[i], 0xa5) << error;
    return error;
  }
};

TEST(CApi, RefusesWrongAppends) {
  EXPECT_EQ(Append().run(), "accepted");
  const struct {
    const char* text;
    std::function<void(Append&)> spoil;
  } cases[] = {
      {"fovea_append: v is null and the other of k and v is given", [](Append& a) { a.args.v = nullptr; }},
      {"k is null; it is needed", [](Append& a) { a.args.q = a.args.k = a.args.v = nullptr; }},
      {"q_out is null; it is needed", [](Append& a) { a.args.q_out = nullptr; }},
      {"k has shape [2, 2, 16]; it must be [T = 3, Hkv, D = 16]", [](Append& a) { a.k.shape[0] = 2; }},
      {"k has dtype float16 and q float32; they must have the same", [](Append& a) { a.k.t.dtype = kF16; }},
      {"v has dtype bfloat16; it must be float32", [](Append& a) { a.v.t.dtype = kBf16; }},
      {"k_cache is null; it is needed", [](Append& a) { a.args.k_cache = nullptr; }},
      {"v_cache has shape [6, 4, 2, 7] with head size 7; it must be 8",
       [](Append& a) { a.v_cache.shape[3] = 7; }},
      {"k_cache has dtype uint8; it must be float32, float16, bfloat16, float8_e4m3fn, float8_e5m2 or int8",
       [](Append& a) { a.k_cache.t.dtype = kU8; }},
      {"k_cache is on cuda:0; it must be on cpu", [](Append& a) { a.k_cache.t.device = {FOVEA_CUDA, 0}; }},
      {"k_cache has strides [0, 32, 16, 1] for shape [6, 4, 2, 16]; it is written to, and its elements "
       "overlap",
       [](Append& a) { a.k_cache.strides[0] = 0; }},
      {"v_cache has strides [64, 16, 0, 1] for shape [6, 4, 2, 8]; it is written to",
       [](Append& a) { a.v_cache.strides[2] = 0; }},
      {"q_out has strides [0, 16, 1] for shape [3, 4, 16]; it is written to",
       [](Append& a) { a.q_out.strides[0] = 0; }},
      {"k_scales is null; it is needed", [](Append& a) { a.k_cache.t.dtype = a.v_cache.t.dtype = kI8; }},
      {"kv_dtype 'fp7' is unknown", [](Append& a) { a.args.kv_dtype = "fp7"; }},
      {"kv_dtype nvfp4 can't be stored", [](Append& a) { a.args.kv_dtype = "nvfp4"; }},
      {"slots has shape [2]; it must be [T = 3]", [](Append& a) { a.slots.shape[0] = 2; }},
      {"slots has strides [2] for shape [3]; it must be dense", [](Append& a) { a.slots.strides[0] = 2; }},
      {"slots[1] is 24; the cache has 24", [](Append& a) { a.slots.as<int32_t>()[1] = 24; }},
      {"kv_lens is given with slots", [](Append& a) { a.args.kv_lens = &a.other.t; }},
      {"kv_lens is null; it is needed", [](Append& a) { a.args.slots = nullptr; }},
      {"q_offsets is null; it is needed",
       [](Append& a) { a.args.slots = nullptr, a.args.kv_lens = &a.other.t; }},
      {"q_norm has shape [15]; it must be [D = 16]", [](Append& a) { a.norm.shape[0] = 15; }},
      {"norm_eps is -1.000000", [](Append& a) { a.args.norm_eps = -1; }},
      {"sin is null with others of cos, sin and positions given", [](Append& a) { a.args.sin = nullptr; }},
      {"cos has shape [1, 9]; its rows must have 1 to 8 elements",
       [](Append& a) { a.cos = HostTensor(kF32, {1, 9}); }},
      {"sin has shape [3, 4]; it must be [positions = 4, rotary_dim / 2 = 4]",
       [](Append& a) { a.sin.shape[0] = 3; }},
      {"the position of token 1 is 4; cos and sin have 4 rows",
       [](Append& a) { a.positions.as<int64_t>()[1] = 4; }},
      {"fovea_append_args->size is 12", [](Append& a) { a.args.size = 12; }},
  };
  for (const auto& c : cases) {
    Append a;
    c.spoil(a);
    EXPECT_THAT(a.run(), HasSubstr(c.text));
  }
}

TEST(CApi, RefusesWrongCopiesGathersAndMerges) {
  HostTensor k(kF32, {kPages, kPage, kKvHeads, kDim}), v(kF32, {kPages, kPage, kKvHeads, kVDim});
  HostTensor from = ints({1}), to = ints({6}), rows(kF32, {1, kKvHeads, kDim}),
             v_rows(kF32, {1, kKvHeads, kVDim});
  const auto copy = [&] {
    return last_error(fovea_copy_pages(k.get(), v.get(), from.get(), to.get(), nullptr));
  };
  const auto gather = [&] {
    return last_error(fovea_gather(k.get(), v.get(), 0, 0, from.get(), rows.get(), v_rows.get(), nullptr));
  };
  EXPECT_THAT(copy(), HasSubstr("fovea_copy_pages: to[0] is 6; the cache has 6 pages"));
  to = ints({2});
  EXPECT_EQ(copy(), "accepted");
  k.strides = {128, 16, 64, 1};  // heads first
  EXPECT_EQ(copy(), "accepted");
  k.strides[2] = 65;
  EXPECT_THAT(
      copy(),
      HasSubstr("k_cache has strides [128, 16, 65, 1] for shape [6, 4, 2, 16]; each page must be one"));
  k.strides = {128, 32, 16, 1};
  to = ints({2, 3});
  EXPECT_THAT(copy(), HasSubstr("to has shape [2]; it must be [n = 1]"));
  EXPECT_EQ(gather(), "accepted");
  rows.shape[1] = 3;
  EXPECT_THAT(gather(), HasSubstr("k has shape [1, 3, 16]; it must be [T = 1, Hkv = 2, D = 16]"));
  rows.shape[1] = 2;
  from = ints({24});
  EXPECT_THAT(gather(), HasSubstr("slots[0] is 24; the cache has 24"));
  k.t.dtype = v.t.dtype = kI8;
  EXPECT_THAT(gather(), HasSubstr("an int8_per_token_head cache can't be gathered"));

  HostTensor o(kF32, {2, 3, 4, 8}), lse(kF32, {2, 3, 4}), out(kF32, {3, 4, 8}), out_lse(kF32, {3, 4});
  const auto merge = [&] {
    return last_error(fovea_merge_states(o.get(), lse.get(), out.get(), out_lse.get(), nullptr));
  };
  EXPECT_EQ(merge(), "accepted");
  out.shape[2] = 7;
  EXPECT_THAT(merge(),
              HasSubstr("fovea_merge_states: out has shape [3, 4, 7]; it must be [T = 3, Hq = 4, Dv = 8]"));
  out.shape[2] = 8;
  lse.t.dtype = kF16;
  EXPECT_THAT(merge(), HasSubstr("lse has dtype float16; it must be float32"));
  lse.t.dtype = kF32;
  o.shape[0] = lse.shape[0] = 0;
  EXPECT_THAT(merge(), HasSubstr("o has 0 parts; it must have 1 or more"));
}

TEST(Refusal, FlexAttention) {
  HostTensor q(kF32, {1, 3, 4, 8}), k(kF32, {1, 5, 2, 8}), v(kF32, {1, 5, 2, 6}), out(kF32, {1, 3, 4, 6}),
      lse(kF32, {1, 3, 4}), doc(kI64, {5}, {int64_t{0}, int64_t{0}, int64_t{1}, int64_t{1}, int64_t{1}});
  fovea_flex_buffer buffers[] = {{"doc", nullptr}};
  fovea_flex_args args = {};
  args.size = sizeof args;
  args.mask = "k <= q && doc[q] == doc[k]";
  args.num_buffers = 1;
  args.buffers = buffers;
  int64_t blocks[3] = {};
  args.blocks = blocks;
  const auto flex = [&] {
    args.q = q.get(), args.k = k.get(), args.v = v.get(), args.out = out.get(), args.lse = lse.get();
    buffers[0].tensor = doc.get();
    return last_error(fovea_flex_attention(&args, nullptr));
  };
  EXPECT_EQ(flex(), "accepted");
  EXPECT_EQ(blocks[0] + blocks[1] + blocks[2], 2) << "two KV heads";
  args.mask = "k <= q && dock[q]";
  EXPECT_THAT(flex(), HasSubstr("fovea_flex_attention: mask, column 11: unknown name 'dock'"));
  args.mask = nullptr;
  args.score = "s *";
  EXPECT_THAT(flex(), HasSubstr("score, column 4: expected an operand"));
  args.score = nullptr;
  EXPECT_EQ(flex(), "accepted");
  doc.as<int64_t>()[3] = int64_t{1} << 40;
  EXPECT_THAT(flex(), HasSubstr("buffer 'doc'[3] is 1099511627776; it must fit 32 bits"));
  doc.as<int64_t>()[3] = 0;
  buffers[0].name = "inf";
  EXPECT_THAT(flex(), HasSubstr("buffer 'inf' has a name that the language uses"));
  buffers[0].name = nullptr;
  EXPECT_THAT(flex(), HasSubstr("buffers[0].name is null"));
  buffers[0].name = "doc";
  k.shape[2] = 3;
  EXPECT_THAT(flex(), HasSubstr("v has shape [1, 5, 2, 6]; it must be [B = 1, Sk = 5, Hkv = 3, Dv]"));
  k.shape[2] = 2;
  out.strides[2] = 0;
  EXPECT_THAT(flex(), HasSubstr("out has strides"));
  out.strides[2] = 6;
  args.num_buffers = -1;
  EXPECT_THAT(flex(), HasSubstr("num_buffers is -1; it must be 0 to 256"));
  args.num_buffers = 0;
  HostTensor ends(kI32, {2}, {0, 3});
  args.kv_offsets = ends.get();
  EXPECT_THAT(flex(), HasSubstr("kv_offsets is given without q_offsets"));
  args.size = 8;
  EXPECT_THAT(flex(), HasSubstr("fovea_flex_args->size is 8"));
}

TEST(Refusal, LinearAttention) {
  HostTensor q(kF32, {3, 2, 8}), k(kF32, {3, 2, 8}), v(kF32, {3, 4, 6}), out(kF32, {3, 4, 6}),
      offsets(kI32, {3}, {0, 1, 3}), state(kF32, {2, 4, 8, 6}), g(kF32, {3, 4}), decay(kF32, {4}),
      times(kI64, {3}), slots(kI64, {2}, {int64_t{0}, int64_t{1}});
  for (HostTensor* t : {&q, &k, &v, &state, &g, &decay})
    std::fill_n(t->as<float>(), t->bytes() / 4, -0.5f);
  fovea_linear_args args = {};
  args.size = sizeof args;
  const auto fill = [&] {
    args.q = q.get(), args.k = k.get(), args.v = v.get(), args.out = out.get(), args.offsets = offsets.get();
    args.initial_state = args.final_state = state.get();
    args.initial_slots = slots.get();
  };
  const auto delta = [&] {
    fill();
    args.g = g.get(), args.log_decay = nullptr;
    return last_error(fovea_gated_delta_rule(&args, nullptr));
  };
  EXPECT_EQ(delta(), "accepted");
  g.t.dtype = kF16;
  EXPECT_THAT(delta(), HasSubstr("fovea_gated_delta_rule: g has dtype float16; it must be float32"));
  g.t.dtype = kF32;
  state.shape[0] = 1;
  EXPECT_THAT(delta(), HasSubstr("sequence 1 has slot 1 in states.in_slots; there are 1 slots"));
  state.shape[0] = 2;
  slots.as<int64_t>()[1] = int64_t{1} << 40;
  EXPECT_THAT(delta(), HasSubstr("initial_slots[1] is 1099511627776; it must fit 32 bits"));
  slots.as<int64_t>()[1] = 1;
  out.strides[0] = 4;
  EXPECT_THAT(delta(), HasSubstr("out has strides"));
  out.strides[0] = 24;
  args.form = 2;
  EXPECT_THAT(delta(), HasSubstr("form is 2; it must be FOVEA_CHUNKED (0) or FOVEA_RECURRENT (1)"));
  args.form = 0;
  args.size = 8;
  EXPECT_THAT(delta(), HasSubstr("fovea_linear_args->size is 8"));
  args.size = sizeof args;

  const auto lightning = [&] {
    fill();
    args.g = nullptr, args.log_decay = decay.get();
    return last_error(fovea_lightning_attention(&args, nullptr));
  };
  EXPECT_THAT(lightning(), HasSubstr("lightning attention has as many of each"));
  v.shape[1] = out.shape[1] = state.shape[1] = 2;
  decay.shape[0] = 2, state.strides[0] = 96;
  EXPECT_EQ(lightning(), "accepted");
  args.normalize_qk = 1;
  EXPECT_THAT(lightning(), HasSubstr("lightning attention has none of them"));

  fovea_hstu_args h = {};
  h.size = sizeof h;
  h.max_seq_len = 4;
  const auto hstu = [&] {
    h.q = q.get(), h.k = k.get(), h.v = v.get(), h.out = out.get(), h.offsets = offsets.get();
    return last_error(fovea_hstu_attention(&h, nullptr));
  };
  EXPECT_EQ(hstu(), "accepted");
  h.times = times.get();
  EXPECT_THAT(hstu(), HasSubstr("times or time_bounds is given without time_bias"));
  h.times = nullptr;
  h.max_seq_len = 1;
  EXPECT_THAT(hstu(), HasSubstr("sequence 1 has 2 rows; max_seq_len is 1"));
  EXPECT_THAT(last_error(fovea_hstu_time_bounds(-1, nullptr)), HasSubstr("buckets is -1"));
}

/// The library's own unwinder carries an exception from its inside to the boundary of the interface.
TEST(Refusal, MemoryThatThereIsNotIsAStatus) {
  HostTensor o(kF32, {1, 1, 1, 1}), lse(kF32, {1, 1, 1}), out(kF32, {1, 1, 1});
  // 2^50 bytes are requested before the first one is read.
  constexpr int64_t kWide = 4096;
  o.shape = {kWide * kWide, 1, kWide, kWide}, o.strides = {kWide * kWide, kWide * kWide, kWide, 1};
  lse.shape = {kWide * kWide, 1, kWide}, lse.strides = {kWide, kWide, 1};
  out.shape = {1, kWide, kWide}, out.strides = {kWide * kWide, kWide, 1};
  EXPECT_EQ(fovea_merge_states(o.get(), lse.get(), out.get(), nullptr, nullptr), FOVEA_OUT_OF_MEMORY);
  EXPECT_THAT(fovea_last_error(), HasSubstr("fovea_merge_states: the system refuses more memory"));
}

}  // namespace
}  // namespace fovea
