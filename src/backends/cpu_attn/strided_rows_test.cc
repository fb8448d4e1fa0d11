// Strided queries and outputs: the CPU backends give the same bits as for dense rows.
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "backends/cpu_attn/cpu_attn.h"
#include "backends/torch_native/torch_native.h"
#include "base/aligned.h"
#include "base/thread_pool.h"
#include "device/stream.h"

namespace fovea {
namespace {

using ::testing::HasSubstr;

constexpr int kSeqs = 3, kRows = 5, kHeads = 4, kDim = 32, kVDim = 32, kPage = 8, kPages = 6;

/// Three sequences of five rows, the last of 5, 9 and 16 keys.
struct Step {
  AttentionSpec spec;
  std::vector<int32_t> q_offsets = {0, 5, 10, 15}, kv_lens = {5, 9, 16}, table = {4, 0, 2, 5, 1, 3};
  std::vector<float> q, k, v;

  Step() {
    spec.num_heads = kHeads;
    spec.num_kv_heads = 2;
    spec.head_dim = kDim;
    spec.v_head_dim = kVDim;
    spec.scale = 0.25f;
    spec.dtype = DType::f32;
    spec.page_size = kPage;
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const auto draw = [&](std::vector<float>& to, int count) {
      to.resize(static_cast<size_t>(count));
      for (float& x : to)
        x = normal(random);
    };
    draw(q, kSeqs * kRows * kHeads * kDim);
    draw(k, kPages * kPage * 2 * kDim);
    draw(v, kPages * kPage * 2 * kVDim);
  }
  BatchMeta meta() const {
    BatchMeta m;
    m.q_offsets = q_offsets, m.kv_lens = kv_lens, m.page_table = table;
    m.page_table_stride = 2;
    return m;
  }
  AttentionArgs args() const {
    AttentionArgs a;
    a.q = q.data();
    a.q_row_stride = kHeads * kDim;
    a.out_row_stride = kHeads * kVDim;
    a.kv.k = k.data(), a.kv.v = v.data();
    a.kv.page_size = kPage;
    a.kv.k_head_stride = kDim, a.kv.k_slot_stride = 2 * kDim, a.kv.k_page_stride = kPage * 2 * kDim;
    a.kv.v_head_stride = kVDim, a.kv.v_slot_stride = 2 * kVDim, a.kv.v_page_stride = kPage * 2 * kVDim;
    return a;
  }
};

std::vector<float> run(AttentionBackend& backend, const Step& step, AttentionArgs args, size_t out_size) {
  ThreadPool pool(2);
  Stream stream(pool);
  const AttentionLimits limits = {kSeqs, kSeqs * kRows, 64, 16};
  const auto bytes = backend.workspace_bytes(step.spec, limits);
  EXPECT_TRUE(bytes.ok());
  AlignedArray<std::byte> memory(*bytes);
  const auto plan = backend.plan(step.spec, limits, step.meta(), memory, stream);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
  std::vector<float> out(out_size, -1000.0f);
  args.out = out.data();
  const Status status = backend.forward_extend(**plan, args, stream);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  return out;
}

class StridedRows : public testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<AttentionBackend> backend_ = GetParam() ? make_cpu_attn() : make_torch_native();
  Step step_;
  const std::vector<float> want_ = run(*backend_, step_, step_.args(), kSeqs* kRows* kHeads* kVDim);
};

TEST_P(StridedRows, HeadsInFrontOfRows) {
  // [B, H, S, D], with an unused row after each head.
  constexpr int kRoom = kRows + 1;
  const auto at = [](int t, int h, int d) {
    return static_cast<size_t>(((t / kRows * kHeads + h) * kRoom + t % kRows) * d);
  };
  std::vector<float> q(kSeqs * kHeads * kRoom * kDim, NAN);
  for (int t = 0; t < kSeqs * kRows; ++t)
    for (int h = 0; h < kHeads; ++h)
      std::copy_n(step_.q.begin() + (t * kHeads + h) * kDim, kDim,
                  q.begin() + static_cast<ptrdiff_t>(at(t, h, kDim)));
  AttentionArgs args = step_.args();
  args.q = q.data();
  args.q_row_stride = kDim, args.q_head_stride = kRoom * kDim;
  args.q_block_rows = kRows, args.q_block_stride = kHeads * kRoom * kDim;
  EXPECT_EQ(run(*backend_, step_, args, want_.size()), want_);
  args.out_row_stride = kVDim, args.out_head_stride = kRoom * kVDim;
  args.out_block_rows = kRows, args.out_block_stride = kHeads * kRoom * kVDim;
  std::vector<float> out = run(*backend_, step_, args, kSeqs * kHeads * kRoom * kVDim);
  for (int t = 0; t < kSeqs * kRows; ++t)
    for (int h = 0; h < kHeads; ++h)
      for (int d = 0; d < kVDim; ++d) {
        float& x = out[at(t, h, kVDim) + static_cast<size_t>(d)];
        EXPECT_EQ(x, want_[static_cast<size_t>((t * kHeads + h) * kVDim + d)]);
        x = -1000.0f;
      }
  EXPECT_EQ(out, std::vector<float>(out.size(), -1000.0f)) << "written between rows";
}

TEST_P(StridedRows, OneHeadSeenAsAll) {
  Step same = step_;
  for (size_t i = 0; i < same.q.size(); ++i)
    same.q[i] = same.q[i / (kHeads * kDim) * (kHeads * kDim) + i % kDim];
  const std::vector<float> want = run(*backend_, same, same.args(), want_.size());
  AttentionArgs args = step_.args();
  args.q_head_stride = 0;
  EXPECT_EQ(run(*backend_, step_, args, want.size()), want);
  EXPECT_NE(want, want_);
}

TEST_P(StridedRows, PageIdsAreLookedAtWhereThePagesAreCounted) {
  ThreadPool pool(1);
  Stream stream(pool);
  const AttentionLimits limits = {kSeqs, kSeqs * kRows, 64, 16};
  AlignedArray<std::byte> memory(*backend_->workspace_bytes(step_.spec, limits));
  const auto error = [&](const AttentionSpec& spec, int64_t pages) {
    BatchMeta meta = step_.meta();
    meta.num_pages = pages;
    const auto plan = backend_->plan(spec, limits, meta, memory, stream);
    return plan.ok() ? "" : plan.error().message;
  };
  EXPECT_EQ(error(step_.spec, kPages), "");
  EXPECT_THAT(error(step_.spec, kPages - 1),
              HasSubstr("page 1 of sequence 1 is 5; the cache has pages 0 to 4"));
  step_.table = {4, 1 << 30, 1 << 30, 5, 1, 3};  // 5, 9 and 16 keys; entries past them are garbage
  EXPECT_THAT(error(step_.spec, kPages), HasSubstr("page 0 of sequence 1 is 1073741824"));
  AttentionSpec window = step_.spec;
  window.mask.window_left = 0;  // five rows see the last five keys
  EXPECT_THAT(error(window, kPages), HasSubstr("page 0 of sequence 1"));
  step_.q_offsets = {0, 5, 6, 11};
  EXPECT_EQ(error(window, kPages), "") << "the page that no row sees may be anything";
}

INSTANTIATE_TEST_SUITE_P(Cpu, StridedRows, testing::Bool(),
                         [](const auto& given) { return given.param ? "CPU_ATTN" : "TORCH_NATIVE"; });

}  // namespace
}  // namespace fovea
