#include "attention/phased.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "backends/torch_native/torch_native.h"
#include "device/stream.h"

namespace fovea {
namespace {

/// A call of a fake backend.
struct Call {
  std::string what;
  std::vector<int32_t> q_offsets, kv_lens;
  const void* q = nullptr;
  float* lse = nullptr;
};

struct FakePlan : Plan {
  std::vector<int32_t> q_offsets;
};

class FakeBackend : public AttentionBackend {
 public:
  FakeBackend(std::string name, size_t bytes, std::vector<Call>& calls)
      : name_(std::move(name)), bytes_(bytes), calls_(calls) {}
  const BackendInfo& info() const noexcept override { return info_; }
  Result<size_t> workspace_bytes(const AttentionSpec&, const AttentionLimits&) const override {
    return bytes_;
  }
  Result<std::unique_ptr<Plan>> plan(const AttentionSpec&, const AttentionLimits&, const BatchMeta& meta,
                                     Workspace workspace, Stream&) override {
    EXPECT_GE(workspace.size(), bytes_);
    std::fill_n(workspace.data(), bytes_, std::byte{static_cast<uint8_t>(name_[0])});
    workspace_ = workspace.first(bytes_);
    calls_.push_back({name_ + " plan",
                      {meta.q_offsets.begin(), meta.q_offsets.end()},
                      {meta.kv_lens.begin(), meta.kv_lens.end()}});
    return std::unique_ptr<Plan>(std::make_unique<FakePlan>());
  }
  Status forward_extend(const Plan&, const AttentionArgs& args, Stream&) override {
    return forward(" extend", args);
  }
  Status forward_decode(const Plan&, const AttentionArgs& args, Stream&) override {
    return forward(" decode", args);
  }

 private:
  Status forward(const char* kind, const AttentionArgs& args) {
    for (std::byte b : workspace_)
      EXPECT_EQ(b, std::byte{static_cast<uint8_t>(name_[0])}) << "the other backend wrote here";
    calls_.push_back({name_ + kind, {}, {}, args.q, args.lse});
    return {};
  }
  BackendInfo info_;
  std::string name_;
  size_t bytes_;
  std::vector<Call>& calls_;
  Workspace workspace_;
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
    ASSERT_TRUE(attention.plan(spec_, {}, meta, decodes, workspace_, stream_).ok());
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
  std::vector<int32_t> q_offsets_, kv_lens_, page_table_;
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
  ASSERT_TRUE(attention.plan(spec_, limits, meta, 2, {}, stream_).ok());
  const float k[] = {0, 0, 0, 0}, v[] = {10, 20, 30, 40};
  AttentionArgs args;
  args.q = q_;
  args.q_row_stride = args.out_row_stride = 1;
  args.out = out_;
  args.kv = {k, v, KvCacheDType::float32, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_TRUE(attention.forward(args, stream_).ok());
  EXPECT_THAT(std::span(out_).first(4), ::testing::ElementsAre(40, 10, 20, 25));
  meta.kv_indptr = std::span(indptr).first(2);  // too short for the prefill part: refused, not ignored
  EXPECT_FALSE(attention.plan(spec_, limits, meta, 2, {}, stream_).ok());
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
  EXPECT_FALSE(attention.plan(spec_, {}, meta, 1, small, stream_).ok());
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
  ASSERT_TRUE(attention.plan(spec_, limits, good, 1, {}, stream_).ok());
  const auto refused = [&](auto change) {
    BatchMeta meta = good;
    change(meta);
    const Status status = attention.plan(spec_, limits, meta, 1, {}, stream_);
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

}  // namespace
}  // namespace fovea
