#include "plugin/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/thread_pool.h"
#include "device/stream.h"
#include "fovea/attention.h"
#include "plugin/convert.h"
#include "plugin/fake_library.h"

namespace fovea::plugin {
namespace {

using testing::HasSubstr;

/// A step of one sequence with two rows and three keys on pages of 16.
struct Step {
  int32_t q_offsets[2] = {0, 2}, kv_lens[1] = {3}, page_table[1] = {0};
  AttentionLimits limits{1, 2, 16, 16};
  AttentionSpec spec;
  BatchMeta meta;
  AttentionArgs args;
  float data[16 * 8] = {};

  Step() {
    spec.num_heads = spec.num_kv_heads = 1;
    spec.head_dim = spec.v_head_dim = 8;
    spec.scale = 1;
    meta.q_offsets = q_offsets;
    meta.kv_lens = kv_lens;
    meta.page_table = page_table;
    meta.page_table_stride = 1;
    args.q = args.kv.k = args.kv.v = data;
    args.out = data;
    args.q_row_stride = args.out_row_stride = 8;
    args.kv.page_size = 16;
  }
};

class LibraryBackendTest : public testing::Test {
 protected:
  void SetUp() override { fake = Fake{}; }
  void TearDown() override {
    EXPECT_EQ(fake.plans, 0);
    EXPECT_EQ(fake.instances, 0);
  }

  /// The fake library with `change` applied to its functions.
  std::unique_ptr<Library> library(const std::function<void(fovea_backend&)>& change = [](auto&) {}) {
    fovea_backend b = fake_backend(table_);
    change(b);
    auto made = Library::create(&b, "/a/file.so");
    EXPECT_TRUE(made.ok()) << made.error().message;
    return *std::move(made);
  }
  std::string refusal(const std::function<void(fovea_backend&)>& change) {
    fovea_backend b = fake_backend(table_);
    change(b);
    const auto made = Library::create(&b, "/a/file.so");
    return made ? "" : made.error().message;
  }
  auto plan(AttentionBackend& backend, Workspace workspace = {}) {
    return backend.plan(step_.spec, step_.limits, step_.meta, workspace, stream_);
  }

  fovea_backend_table table_ = fake_table();
  ThreadPool pool_{3};
  Stream stream_{pool_};
  Step step_;
};

TEST_F(LibraryBackendTest, RefusesStructsThatAreNotWhole) {
  EXPECT_EQ(Library::create(nullptr, "").error().message, "fovea_backend is null");
  EXPECT_THAT(refusal([](auto& b) { b.size = 40; }), HasSubstr("fovea_backend->size is 40"));
  EXPECT_THAT(refusal([](auto& b) { b.table = nullptr; }), HasSubstr("fovea_backend_table is null"));
  EXPECT_THAT(refusal([](auto& b) { b.create = nullptr; }), HasSubstr("fovea_backend->create is null"));
  EXPECT_THAT(refusal([](auto& b) { b.destroy = nullptr; }), HasSubstr("->destroy is null"));
  EXPECT_THAT(refusal([](auto& b) { b.workspace_bytes = nullptr; }), HasSubstr("->workspace_bytes is null"));
  EXPECT_THAT(refusal([](auto& b) { b.plan = nullptr; }), HasSubstr("->plan is null"));
  EXPECT_THAT(refusal([](auto& b) { b.destroy_plan = nullptr; }), HasSubstr("->destroy_plan is null"));
  EXPECT_THAT(refusal([](auto& b) { b.forward = nullptr; }), HasSubstr("->forward is null"));
  table_.device = FOVEA_BACKEND_CUDA;
  table_.graph = FOVEA_BACKEND_GRAPH_ALWAYS;
  EXPECT_THAT(refusal([](auto&) {}), HasSubstr("needs graph_workspace_bytes"));
}

TEST_F(LibraryBackendTest, PlansAndRuns) {
  const auto made = library();
  EXPECT_EQ(made->info().library, "/a/file.so");
  auto backend = make_backend(*made);
  EXPECT_EQ(fake.instances, 1);
  step_.spec.mask.window_left = 2;
  auto planned = plan(*backend);
  ASSERT_TRUE(planned.ok()) << planned.error().message;
  EXPECT_EQ(fake.spec.size, sizeof(fovea_backend_spec));
  EXPECT_EQ(fake.spec.page_size, 16) << "the preferred one";
  EXPECT_EQ(fake.spec.kv_dtype, FOVEA_BACKEND_KV_F32) << "auto, resolved";
  EXPECT_EQ(fake.spec.window_left, 2);
  EXPECT_EQ(fake.spec.window_right, -1);
  EXPECT_EQ(fake.spec.causal, 1);
  EXPECT_EQ(fake.batch.num_tokens, 2);
  EXPECT_EQ(fake.batch.kv_lens, step_.kv_lens);
  EXPECT_EQ(fake.batch.spans, nullptr);
  step_.args.kv.k_slot_stride = 77;
  ASSERT_TRUE(backend->forward_decode(**planned, step_.args, stream_).ok());
  EXPECT_EQ(fake.phase, FOVEA_BACKEND_DECODE);
  EXPECT_EQ(fake.args.k_slot_stride, 77);
  EXPECT_EQ(fake.args.q_head_stride, 8);
  EXPECT_EQ(fake.args.sinks, nullptr);
  ASSERT_TRUE(backend->forward_extend(**planned, step_.args, stream_).ok());
  EXPECT_EQ(fake.phase, FOVEA_BACKEND_PREFILL);
  EXPECT_TRUE((*planned)->launched().empty());
  EXPECT_TRUE(backend->check_plan(**planned, 1, stream_).ok());
  // A plan may outlive the backend that made it.
  backend.reset();
  EXPECT_EQ(fake.instances, 1);
}

TEST_F(LibraryBackendTest, AStepWithoutRowsIsNotTheLibrarys) {
  const auto made = library();
  const auto backend = make_backend(*made);
  step_.meta = {};
  const auto planned = plan(*backend);
  ASSERT_TRUE(planned.ok()) << planned.error().message;
  EXPECT_TRUE(backend->forward_extend(**planned, step_.args, stream_).ok());
  EXPECT_EQ(fake.plans + fake.forwards, 0);
}

TEST_F(LibraryBackendTest, ChecksBeforeTheLibraryIsAsked) {
  const auto made = library();
  const auto backend = make_backend(*made);
  step_.spec.softcap = 3;
  EXPECT_THAT(plan(*backend).error().message, HasSubstr("logit soft cap not supported"));
  step_.spec.softcap = 0;
  step_.limits.max_tokens = 1;
  EXPECT_THAT(plan(*backend).error().message, HasSubstr("q_offsets"));
  step_.limits.max_tokens = 2;
  fake.bytes = 128;
  EXPECT_THAT(plan(*backend).error().message, HasSubstr("a workspace of 0 bytes; these limits need 128"));
  alignas(64) std::byte room[192];
  EXPECT_THAT(plan(*backend, {room + 1, 128}).error().message, HasSubstr("not aligned to 64"));
  fake.bytes = uint64_t{1} << 60;
  EXPECT_THAT(plan(*backend).error().message, HasSubstr("use smaller limits"));
  EXPECT_EQ(fake.plans, 0);
  fake.bytes = 128;
  const auto planned = plan(*backend, {room, 128});
  ASSERT_TRUE(planned.ok());
  step_.args.kv.page_size = 8;
  EXPECT_THAT(backend->forward_extend(**planned, step_.args, stream_).error().message,
              HasSubstr("pages of 8 tokens"));
  step_.args.kv.page_size = 16;
  step_.args.kv.dtype = KvCacheDType::float16;
  EXPECT_THAT(backend->forward_extend(**planned, step_.args, stream_).error().message,
              HasSubstr("the cache has float16; the step was planned for float32"));
  EXPECT_EQ(fake.forwards, 0);
}

TEST_F(LibraryBackendTest, ErrorsCrossAsOneLine) {
  const auto made = library();
  const auto backend = make_backend(*made);
  fake.message = "two\nlines";
  fake.plan_status = FOVEA_BACKEND_UNSUPPORTED;
  auto failed = plan(*backend);
  EXPECT_EQ(failed.error().message, "FAKE_ATTN: two lines");
  EXPECT_EQ(failed.error().code, ErrorCode::unsupported);
  fake.message = "";
  fake.plan_status = -7;
  failed = plan(*backend);
  EXPECT_EQ(failed.error().message, "FAKE_ATTN: plan() failed with status -7 and without a message");
  EXPECT_EQ(failed.error().code, ErrorCode::internal);
  fake.plan_status = 0;
  fake.no_plan = true;
  EXPECT_THAT(plan(*backend).error().message, HasSubstr("and no plan"));
  fake.no_plan = false;
  fake.bytes_status = FOVEA_BACKEND_OUT_OF_MEMORY;
  const std::string longer(5000, 'x');
  fake.message = longer.c_str();
  EXPECT_EQ(plan(*backend).error().message, "FAKE_ATTN: " + std::string(1023, 'x'));
  fake.bytes_status = 0;
  const auto planned = plan(*backend);
  ASSERT_TRUE(planned.ok());
  fake.forward_status = FOVEA_BACKEND_INVALID_ARGUMENT;
  fake.message = "no";
  EXPECT_EQ(backend->forward_extend(**planned, step_.args, stream_).error().message, "FAKE_ATTN: no");
}

TEST_F(LibraryBackendTest, AnInstanceThatFailsIsAnErrorOfEachCall) {
  const auto made = library();
  fake.create_status = FOVEA_BACKEND_UNSUPPORTED;
  fake.message = "needs AVX-512";
  const auto backend = make_backend(*made);
  EXPECT_EQ(plan(*backend).error().message, "FAKE_ATTN: needs AVX-512");
  EXPECT_EQ(backend->workspace_bytes(step_.spec, step_.limits).error().message, "FAKE_ATTN: needs AVX-512");
}

TEST_F(LibraryBackendTest, GraphsOfACpuAreRefusedAsThoseOfOthers) {
  const auto made = library();
  const auto backend = make_backend(*made);
  EXPECT_THAT(backend->init_graph_state(step_.spec, step_.limits).error().message,
              HasSubstr("can't be captured in a graph"));
}

TEST_F(LibraryBackendTest, LaunchedKernelsAreNamed) {
  const auto made = library([](fovea_backend& b) {
    b.launched = [](void*, const void*, void (*emit)(void*, const fovea_backend_kernel*), void* data) {
      fovea_backend_kernel kernel{sizeof kernel, 0, 0, "fake", "decode"};
      emit(data, &kernel);
      kernel.instance = nullptr;
      emit(data, &kernel);
      kernel.size = 4;
      emit(data, &kernel);
      emit(data, nullptr);
    };
  });
  const auto backend = make_backend(*made);
  const auto planned = plan(*backend);
  ASSERT_TRUE(planned.ok());
  EXPECT_EQ((*planned)->launched(), (std::vector<KernelName>{{"fake", "decode"}, {"fake", ""}}));
}

TEST_F(LibraryBackendTest, KernelsThatAreReachedAreNamed) {
  const auto silent = library();
  EXPECT_TRUE(make_backend(*silent)->kernels(DeviceInfo{}).empty());
  const auto made = library([](fovea_backend& b) {
    b.kernels = [](void*, const fovea_backend_device* device,
                   void (*emit)(void*, const fovea_backend_kernel*), void* data) {
      const fovea_backend_kernel kernel{sizeof kernel, device->compute_capability, 3, "fake", "decode"};
      emit(data, &kernel);
    };
  });
  const auto backend = make_backend(*made);
  EXPECT_EQ(backend->kernels(DeviceInfo{}), (std::vector<KernelName>{{"fake", "decode", 0, 3}}));
  EXPECT_TRUE(backend->kernels(*parse_device("sm90")).empty()) << "another device's";
}

TEST_F(LibraryBackendTest, CombinationsAreReasons) {
  const auto made = library([](fovea_backend& b) {
    b.supports = [](const fovea_backend_spec* spec, const fovea_backend_device* device,
                    const fovea_backend_error* reason, const fovea_backend_error* fix) -> int32_t {
      if (spec->window_left < 0 || device->kind != FOVEA_BACKEND_CPU) return FOVEA_BACKEND_OK;
      if (spec->head_dim == 16) return FOVEA_BACKEND_UNSUPPORTED;  // without a reason
      std::snprintf(reason->text, reason->capacity, "windows with\nhead_size %d", spec->head_dim);
      std::snprintf(fix->text, fix->capacity, "none: drop it");
      return FOVEA_BACKEND_UNSUPPORTED;
    };
  });
  EXPECT_TRUE(validate(made->info(), step_.spec, DeviceInfo{}, Phase::decode).empty());
  step_.spec.mask.window_left = 4;
  const auto reasons = validate(made->info(), step_.spec, DeviceInfo{}, Phase::decode);
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons[0].text, "windows with head_size 8");
  EXPECT_EQ(reasons[0].fix, "none: drop it");
  step_.spec.head_dim = 16;
  const auto unnamed = validate(made->info(), step_.spec, DeviceInfo{}, Phase::decode);
  ASSERT_EQ(unnamed.size(), 1u);
  EXPECT_EQ(unnamed[0].text, "combination not supported by FAKE_ATTN");
  EXPECT_THAT(unnamed[0].fix, HasSubstr("auto"));
  // A dtype without an ABI number must be refused by the table.
  step_.spec.kv_dtype = KvCacheDType::nvfp4;
  const auto of_table = validate(made->info(), step_.spec, DeviceInfo{}, Phase::decode);
  ASSERT_EQ(of_table.size(), 1u);
  EXPECT_EQ(of_table[0].text, "kv_cache_dtype not supported");
}

TEST_F(LibraryBackendTest, CudaWithoutCudaIsDeclaredOnly) {
  table_.device = FOVEA_BACKEND_CUDA;
  const auto made = library();
  const auto reasons = validate(made->info(), step_.spec, *parse_device("sm90"), Phase::decode);
  if (made->info().absent.empty()) {
    EXPECT_TRUE(reasons.empty());
    EXPECT_THAT(plan(*make_backend(*made)).error().message, HasSubstr("the stream is another device's"));
    return;
  }
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_THAT(reasons[0].text, HasSubstr("not in this build: this program was built without CUDA"));
}

/// Runs every index once on threads of the team; nested calls run in order on the task's own thread.
TEST_F(LibraryBackendTest, ParallelForIsTheTeam) {
  const fovea_backend_stream on = to_abi(stream_);
  ASSERT_EQ(on.num_threads, 3);
  struct Seen {
    const fovea_backend_stream* on;
    std::atomic<int> of[100] = {}, inner[100] = {};
    std::atomic<bool> wrong = false;
  } seen{&on};
  on.parallel_for(
      on.team, 100,
      [](void* data, int64_t index, int32_t thread) {
        auto& s = *static_cast<Seen*>(data);
        ++s.of[index];
        if (thread < 0 || thread >= 3) s.wrong = true;
        struct Inner {
          Seen* seen;
          int64_t index, next = 0;
          int32_t thread;
        } inner{&s, index, 0, thread};
        s.on->parallel_for(
            s.on->team, 5,
            [](void* inside, int64_t i, int32_t on_thread) {
              auto& in = *static_cast<Inner*>(inside);
              if (i != in.next++ || on_thread != in.thread) in.seen->wrong = true;
              ++in.seen->inner[in.index];
            },
            &inner);
      },
      &seen);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(seen.of[i], 1);
    EXPECT_EQ(seen.inner[i], 5);
  }
  EXPECT_FALSE(seen.wrong);
  on.parallel_for(on.team, 0, nullptr, nullptr);
  on.parallel_for(on.team, -5, nullptr, nullptr);
}

}  // namespace
}  // namespace fovea::plugin
