#include "attention/phased.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>

#include "backends/torch_native/torch_native.h"
#include "base/thread_pool.h"
#include "device/stream.h"
#include "fovea/attention_config.h"

namespace fovea {
namespace {

/// A call of a fake backend.
struct Call {
  std::string what;
  std::vector<int32_t> q_offsets, kv_lens;
  const void* q = nullptr;
  float* lse = nullptr;
  int seqs = 0, tokens = 0;
  Phase phase = Phase::prefill;
  const int32_t* first_offset = nullptr;
};

struct FakePlan : Plan {
  std::vector<int32_t> q_offsets;
};

class FakeBackend : public AttentionBackend {
 public:
  /// `reads`: whether plan() may read the arrays, because they are in host memory.
  FakeBackend(std::string name, size_t bytes, std::vector<Call>& calls, bool reads = true)
      : name_(std::move(name)), bytes_(bytes), calls_(calls), reads_(reads) {}
  const BackendInfo& info() const noexcept override { return info_; }
  Result<size_t> workspace_bytes(const AttentionSpec&, const AttentionLimits&) const override {
    return bytes_;
  }
  Result<std::unique_ptr<Plan>> plan(const AttentionSpec&, const AttentionLimits&, const BatchMeta& meta,
                                     Workspace workspace, Stream&) override {
    EXPECT_GE(workspace.size(), bytes_);
    std::fill_n(workspace.data(), bytes_, std::byte{static_cast<uint8_t>(name_[0])});
    workspace_ = workspace.first(bytes_);
    note(" plan", meta);
    return std::unique_ptr<Plan>(std::make_unique<FakePlan>());
  }
  Result<size_t> init_graph_state(const AttentionSpec&, const AttentionLimits&) override {
    return bytes_ + 1;
  }
  Result<std::unique_ptr<Plan>> plan_for_capture(const AttentionSpec&, const AttentionLimits&,
                                                 const BatchMeta& meta, Workspace, Stream&) override {
    note(" capture", meta);
    return std::unique_ptr<Plan>(std::make_unique<FakePlan>());
  }
  Status plan_for_replay(Plan&, const BatchMeta& meta, Stream&) override {
    note(" replay", meta);
    return {};
  }
  Status forward_extend(const Plan&, const AttentionArgs& args, Stream&) override {
    return forward(" extend", args);
  }
  Status forward_decode(const Plan&, const AttentionArgs& args, Stream&) override {
    return forward(" decode", args);
  }

 private:
  void note(const char* what, const BatchMeta& meta) {
    Call& call = calls_.emplace_back();
    call.what = name_ + what;
    call.seqs = meta.num_seqs();
    call.tokens = meta.tokens;
    call.phase = meta.phase;
    call.first_offset = meta.q_offsets.data();
    if (!reads_) return;
    call.q_offsets.assign(meta.q_offsets.begin(), meta.q_offsets.end());
    call.kv_lens.assign(meta.kv_lens.begin(), meta.kv_lens.end());
  }
  Status forward(const char* kind, const AttentionArgs& args) {
    for (std::byte b : workspace_)
      EXPECT_EQ(b, std::byte{static_cast<uint8_t>(name_[0])}) << "the other backend wrote here";
    Call& call = calls_.emplace_back();
    call.what = name_ + kind;
    call.q = args.q;
    call.lse = args.lse;
    return {};
  }
  BackendInfo info_;
  std::string name_;
  size_t bytes_;
  std::vector<Call>& calls_;
  bool reads_;
  Workspace workspace_;
};

/// Arrays that the host cannot read, like those in a device's memory.
class Unreadable {
 public:
  Unreadable() : memory_(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~Unreadable() { munmap(memory_, kBytes); }
  Unreadable(const Unreadable&) = delete;
  Unreadable& operator=(const Unreadable&) = delete;
  std::span<const int32_t> take(size_t count) {
    return std::span(static_cast<const int32_t*>(memory_) + std::exchange(used_, used_ + count), count);
  }

 private:
  static constexpr size_t kBytes = 4096;
  void* memory_;
  size_t used_ = 0;
};

class Phased : public ::testing::Test {
 protected:
  Phased() {
    spec_.num_heads = 2;
    spec_.num_kv_heads = 1;
    spec_.head_dim = spec_.v_head_dim = 4;
    spec_.scale = 0.5f;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const Call& c : calls_)
      out.push_back(c.what);
    return out;
  }
  /// The split of a batch in host memory, whose first `decodes` sequences decode.
  PhaseSplit split_of(const BatchMeta& meta, int decodes) {
    const auto first = static_cast<size_t>(decodes);
    PhaseSplit split;
    split.num_decodes = decodes;
    if (first < meta.q_offsets.size()) split.decode_rows = meta.q_offsets[first];
    prefill_offsets_.clear();
    for (size_t b = first; b < meta.q_offsets.size(); ++b)
      prefill_offsets_.push_back(meta.q_offsets[b] - split.decode_rows);
    split.prefill_offsets = prefill_offsets_;
    split.host_q_offsets = meta.q_offsets;
    split.host_kv_lens = meta.kv_lens;
    return split;
  }
  /// One step of three layers over sequences of these query lengths; the first `decodes` of them decode.
  void step(PhasedAttention& attention, std::vector<int> q_lens, int decodes) {
    q_offsets_ = {0};
    kv_lens_.clear();
    for (int n : q_lens) {
      q_offsets_.push_back(q_offsets_.back() + n);
      kv_lens_.push_back(n + 10 * static_cast<int>(kv_lens_.size() + 1));
    }
    page_table_.assign(q_lens.size(), 0);
    BatchMeta meta;
    meta.q_offsets = q_offsets_;
    meta.kv_lens = kv_lens_;
    meta.page_table = page_table_;
    meta.page_table_stride = 1;
    workspace_.assign(*attention.workspace_bytes(spec_, {}), std::byte{0});
    ASSERT_TRUE(attention.plan(spec_, {}, meta, split_of(meta, decodes), workspace_, stream_).ok());
    AttentionArgs args;
    args.q = q_;
    args.q_row_stride = 8;
    args.out = out_;
    args.out_row_stride = 8;
    args.lse = lse_;
    for (int layer = 0; layer < 3; ++layer)
      EXPECT_TRUE(attention.forward(args, stream_).ok());
  }
  PhasedAttention two() {
    return PhasedAttention(std::make_unique<FakeBackend>("P", 100, calls_),
                           std::make_unique<FakeBackend>("D", 40, calls_));
  }

  AttentionSpec spec_;
  std::vector<Call> calls_;
  std::vector<int32_t> q_offsets_, kv_lens_, page_table_, prefill_offsets_;
  std::vector<std::byte> workspace_;
  float q_[800] = {}, out_[800] = {}, lse_[200] = {};
  ThreadPool pool_{1};
  Stream stream_{pool_};
};

TEST_F(Phased, PlansOnceAStepAndRunsOnceALayer) {
  PhasedAttention attention = two();
  step(attention, {1, 1, 1}, 3);
  EXPECT_THAT(names(), ::testing::ElementsAre("D plan", "D decode", "D decode", "D decode"));
  calls_.clear();
  step(attention, {5, 1}, 0);
  EXPECT_THAT(names(), ::testing::ElementsAre("P plan", "P extend", "P extend", "P extend"));
}

TEST_F(Phased, CountsWhatEachPhaseDid) {
  PhasedAttention attention = two();
  step(attention, {1, 1}, 2);  // 11 and 21 keys
  // Per key 8 elements of 4 bytes, per row 2 heads of the same size.
  EXPECT_EQ(attention.use(Phase::decode).calls, 3);
  EXPECT_EQ(attention.use(Phase::decode).work.bytes, 3 * (32 * 32 + 2 * 64));
  EXPECT_EQ(attention.use(Phase::decode).work.flops, 3 * 2 * 32 * 16);
  EXPECT_GT(attention.use(Phase::decode).seconds, 0);
  EXPECT_EQ(attention.use(Phase::prefill).calls, 0);
  step(attention, {1, 2}, 1);  // 11 and 22 keys
  EXPECT_EQ(attention.use(Phase::decode).calls, 6);
  EXPECT_EQ(attention.use(Phase::prefill).calls, 3);
  EXPECT_EQ(attention.use(Phase::prefill).work.bytes, 3 * (22 * 32 + 2 * 64));
  EXPECT_EQ(attention.use(Phase::prefill).work.flops, 3 * 2 * (21 + 22) * 16);
}

TEST_F(Phased, AMixedStepOfOneBackendCountsAsAPrefill) {
  PhasedAttention attention(std::make_unique<FakeBackend>("P", 100, calls_));
  step(attention, {1, 2}, 1);
  EXPECT_EQ(attention.use(Phase::decode).calls, 0);
  EXPECT_EQ(attention.use(Phase::prefill).calls, 3);
  EXPECT_EQ(attention.use(Phase::prefill).work.bytes, 3 * (33 * 32 + 3 * 64));
}

TEST_F(Phased, AMixedStepIsSplitWhenTheBackendsDiffer) {
  PhasedAttention attention = two();
  step(attention, {1, 1, 5, 3}, 2);
  EXPECT_THAT(names(), ::testing::ElementsAre("D plan", "P plan", "D decode", "P extend", "D decode",
                                              "P extend", "D decode", "P extend"));
  EXPECT_THAT(calls_[0].q_offsets, ::testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(calls_[0].kv_lens, ::testing::ElementsAre(11, 21));
  EXPECT_THAT(calls_[1].q_offsets, ::testing::ElementsAre(0, 5, 8));
  EXPECT_THAT(calls_[1].kv_lens, ::testing::ElementsAre(35, 43));
  EXPECT_EQ(calls_[2].q, q_);
  EXPECT_EQ(calls_[3].q, q_ + 2 * 8);
  EXPECT_EQ(calls_[3].lse, lse_ + 2 * 2);
}

TEST_F(Phased, AMixedStepOfOneBackendIsOneExtend) {
  PhasedAttention attention(std::make_unique<FakeBackend>("P", 100, calls_));
  step(attention, {1, 1, 5, 3}, 2);
  EXPECT_THAT(names(), ::testing::ElementsAre("P plan", "P extend", "P extend", "P extend"));
  EXPECT_THAT(calls_[0].q_offsets, ::testing::ElementsAre(0, 1, 2, 7, 10));
  calls_.clear();
  step(attention, {1, 1}, 2);
  EXPECT_THAT(names(), ::testing::ElementsAre("P plan", "P decode", "P decode", "P decode"));
}

/// One mixed step of TORCH_NATIVE for both phases: each gets its own sequences' pages.
TEST_F(Phased, PageListsAreSplitWithTheStep) {
  PhasedAttention attention(make_torch_native(), make_torch_native());
  spec_.num_heads = spec_.num_kv_heads = spec_.head_dim = spec_.v_head_dim = 1;
  spec_.page_size = 1;
  const int32_t offsets[] = {0, 1, 2, 4}, lens[] = {1, 1, 2}, indptr[] = {1, 2, 3, 5},
                indices[] = {99, 3, 0, 1, 2};
  BatchMeta meta;
  meta.q_offsets = offsets;
  meta.kv_lens = lens;
  meta.kv_indptr = indptr;
  meta.kv_indices = indices;
  const AttentionLimits limits{3, 4, 4, 2};
  ASSERT_TRUE(attention.plan(spec_, limits, meta, split_of(meta, 2), {}, stream_).ok());
  const float k[] = {0, 0, 0, 0}, v[] = {10, 20, 30, 40};
  AttentionArgs args;
  args.q = q_;
  args.q_row_stride = args.out_row_stride = 1;
  args.out = out_;
  args.kv = {k, v, KvCacheDType::float32, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_TRUE(attention.forward(args, stream_).ok());
  EXPECT_THAT(std::span(out_).first(4), ::testing::ElementsAre(40, 10, 20, 25));
  meta.kv_indptr = std::span(indptr).first(2);  // too short for the prefill part: refused, not ignored
  EXPECT_FALSE(attention.plan(spec_, limits, meta, split_of(meta, 2), {}, stream_).ok());
}

TEST_F(Phased, AnEmptyStepDoesNothing) {
  PhasedAttention attention = two();
  step(attention, {}, 0);
  EXPECT_THAT(names(), ::testing::IsEmpty());
}

TEST_F(Phased, WorkspaceHoldsBothAligned) {
  PhasedAttention attention = two();
  EXPECT_EQ(*attention.workspace_bytes(spec_, {}), 128u + 64u);
  std::vector<std::byte> small(64);
  const int32_t offsets[] = {0, 1}, lens[] = {1}, table[] = {0};
  BatchMeta meta;
  meta.q_offsets = offsets;
  meta.kv_lens = lens;
  meta.page_table = table;
  meta.page_table_stride = 1;
  EXPECT_FALSE(attention.plan(spec_, {}, meta, split_of(meta, 1), small, stream_).ok());
}

TEST_F(Phased, ArraysThatAreTooShortAreRefused) {
  PhasedAttention attention(make_torch_native(), make_torch_native());
  spec_.num_heads = spec_.num_kv_heads = 1;
  spec_.head_dim = spec_.v_head_dim = 8;
  spec_.scale = 1;
  spec_.mask.spans = true;
  const AttentionLimits limits{.max_seqs = 8, .max_tokens = 64, .max_kv_tokens = 64, .max_kv_len = 64};
  const std::vector<int32_t> offsets{0, 1, 3}, lens{5, 6}, table{0, 1}, no_spans{0, 0, 0};
  BatchMeta good;
  good.q_offsets = offsets;
  good.kv_lens = lens;
  good.page_table = table;
  good.page_table_stride = 1;
  good.span_offsets = no_spans;
  ASSERT_TRUE(attention.plan(spec_, limits, good, split_of(good, 1), {}, stream_).ok());
  const auto refused = [&](auto change) {
    BatchMeta meta = good;
    change(meta);
    const Status status = attention.plan(spec_, limits, meta, split_of(good, 1), {}, stream_);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_THAT(refused([](BatchMeta& m) { m.q_offsets = m.q_offsets.first(2); }),
              ::testing::HasSubstr("q_offsets"));
  EXPECT_THAT(refused([](BatchMeta& m) { m.page_table = m.page_table.first(1); }),
              ::testing::HasSubstr("page table"));
  EXPECT_THAT(refused([](BatchMeta& m) { m.page_table = {}; }), ::testing::HasSubstr("page table"));
  EXPECT_THAT(refused([](BatchMeta& m) { m.page_table_stride = INT64_MAX / 2; }),
              ::testing::HasSubstr("page table"));
  EXPECT_THAT(refused([](BatchMeta& m) { m.page_table_stride = -1; }),
              ::testing::HasSubstr("page_table_stride"));
  EXPECT_THAT(refused([](BatchMeta& m) { m.span_offsets = m.span_offsets.first(2); }),
              ::testing::HasSubstr("span_offsets"));
}

/// Only sizes, `tokens` and the split decide; the host cannot read the arrays.
TEST_F(Phased, TheArraysOfAStepAreNotRead) {
  Unreadable device;
  BatchMeta meta;
  meta.q_offsets = device.take(5);
  meta.kv_lens = device.take(4);
  meta.page_table = device.take(4);
  meta.page_table_stride = 1;
  meta.tokens = 10;
  const PhaseSplit split{.num_decodes = 2, .decode_rows = 3, .prefill_offsets = device.take(3)};
  PhasedAttention attention(std::make_unique<FakeBackend>("P", 100, calls_, false),
                            std::make_unique<FakeBackend>("D", 40, calls_, false));
  workspace_.assign(*attention.workspace_bytes(spec_, {}), std::byte{0});
  ASSERT_TRUE(attention.plan(spec_, {}, meta, split, workspace_, stream_).ok());
  AttentionArgs args;
  args.q = q_;
  args.q_row_stride = args.out_row_stride = 8;
  args.out = out_;
  ASSERT_TRUE(attention.forward(args, stream_).ok());
  EXPECT_THAT(names(), ::testing::ElementsAre("D plan", "P plan", "D decode", "P extend"));
  EXPECT_EQ(calls_[0].seqs, 2);
  EXPECT_EQ(calls_[0].tokens, 3);
  EXPECT_EQ(calls_[0].phase, Phase::decode);
  EXPECT_EQ(calls_[0].first_offset, meta.q_offsets.data());
  EXPECT_EQ(calls_[1].seqs, 2);
  EXPECT_EQ(calls_[1].tokens, 7);
  EXPECT_EQ(calls_[1].first_offset, split.prefill_offsets.data());
  EXPECT_EQ(calls_[3].q, q_ + 3 * 8);
  EXPECT_EQ(attention.use(Phase::decode).calls, 1);
  EXPECT_EQ(attention.use(Phase::decode).work.bytes, 0);  // the host does not have the lengths
  EXPECT_FALSE(attention.plan(spec_, {}, meta, {.num_decodes = 1}, workspace_, stream_).ok());
}

TEST_F(Phased, ACapturedStepGoesToItsPhasesBackend) {
  Unreadable device;
  BatchMeta meta;
  meta.q_offsets = device.take(4);
  meta.kv_lens = device.take(3);
  meta.tokens = 3;
  PhasedAttention attention(std::make_unique<FakeBackend>("P", 100, calls_, false),
                            std::make_unique<FakeBackend>("D", 40, calls_, false));
  EXPECT_EQ(*attention.init_graph_state(Phase::decode, spec_, {}), 41u);
  EXPECT_EQ(*attention.init_graph_state(Phase::prefill, spec_, {}), 101u);
  const PhaseSplit decodes{.num_decodes = 3, .decode_rows = 3}, prefills;
  auto captured = attention.plan_for_capture(spec_, {}, meta, decodes, workspace_, stream_);
  ASSERT_TRUE(captured.ok());
  ASSERT_TRUE(attention.forward(*captured, {}, stream_).ok());
  ASSERT_TRUE(attention.plan_for_replay(*captured, meta, decodes, stream_).ok());
  auto extend = attention.plan_for_capture(spec_, {}, meta, prefills, workspace_, stream_);
  ASSERT_TRUE(extend.ok());
  ASSERT_TRUE(attention.forward(*extend, {}, stream_).ok());
  ASSERT_TRUE(attention.plan_for_replay(*extend, meta, prefills, stream_).ok());
  EXPECT_THAT(names(), ::testing::ElementsAre("D capture", "D decode", "D replay", "P capture", "P extend",
                                              "P replay"));
  for (const size_t i : {0u, 2u})
    EXPECT_EQ(calls_[i].phase, Phase::decode);
  for (const size_t i : {3u, 5u})
    EXPECT_EQ(calls_[i].phase, Phase::prefill);
  EXPECT_EQ(attention.use(Phase::decode).calls, 0);

  EXPECT_THAT(attention.plan_for_replay(*captured, meta, prefills, stream_).error().message,
              ::testing::HasSubstr("can't be replayed"));
  const PhaseSplit mixed{.num_decodes = 2, .decode_rows = 2};
  EXPECT_THAT(attention.plan_for_capture(spec_, {}, meta, mixed, workspace_, stream_).error().message,
              ::testing::HasSubstr("can't be captured"));
  calls_.clear();
  PhasedAttention one(std::make_unique<FakeBackend>("P", 100, calls_, false));
  EXPECT_TRUE(one.plan_for_capture(spec_, {}, meta, mixed, workspace_, stream_).ok());
  EXPECT_TRUE(one.plan_for_capture(spec_, {}, meta, decodes, workspace_, stream_).ok());
  EXPECT_EQ(calls_[0].phase, Phase::prefill);  // planned as one extend
  EXPECT_EQ(calls_[1].phase, Phase::decode);
}

TEST_F(Phased, ABackendWithoutGraphsRefusesACapture) {
  PhasedAttention attention(make_torch_native());
  EXPECT_FALSE(attention.init_graph_state(Phase::decode, spec_, {}).ok());
  EXPECT_FALSE(attention.plan_for_capture(spec_, {}, {}, {}, workspace_, stream_).ok());
}

TEST_F(Phased, CreatesWhatWasSelected) {
  spec_.head_dim = spec_.v_head_dim = 64;
  AttentionConfig config;
  config.backend = "torch_native";
  const auto selection = select(config, spec_, {}, builtin_backends());
  ASSERT_TRUE(selection.ok());
  auto attention = PhasedAttention::create(selection->kinds[0], builtin_backends());
  ASSERT_TRUE(attention.ok());
  EXPECT_EQ(attention->prefill_backend().info().name, "TORCH_NATIVE");
  EXPECT_EQ(&attention->prefill_backend(), &attention->decode_backend());
}

TEST_F(Phased, ARowWhosePhasesDifferIsCreatedTwice) {
  spec_.head_dim = spec_.v_head_dim = 64;
  BackendInfo row = torch_native_info();
  row.name = "APART";
  row.aliases = {};
  row.capability.invariance = {Invariance::run, Invariance::batch};
  BackendRegistry registry;
  registry.add(row, [] { return make_torch_native(); });
  AttentionConfig config;
  config.backend = "APART";
  const auto selection = select(config, spec_, {}, registry);
  ASSERT_TRUE(selection.ok());
  auto attention = PhasedAttention::create(selection->kinds[0], registry);
  ASSERT_TRUE(attention.ok());
  EXPECT_NE(&attention->prefill_backend(), &attention->decode_backend());
}

}  // namespace
}  // namespace fovea
