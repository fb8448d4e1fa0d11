// The C ABI on a GPU against itself on the CPU: the same steps, the same calls.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "base/float16.h"
#include "device/cuda/cuda_test_support.h"
#include "kernels/cache/ds_mla.h"
#include "tensors.h"

namespace fovea {
namespace {

using ::testing::HasSubstr;

constexpr int kHeads = 8, kKvHeads = 2, kDim = 64, kPage = 16, kPages = 12, kSeqs = 3;
constexpr fovea_device kCpu = {FOVEA_CPU, 0}, kGpu = {FOVEA_CUDA, 0};

std::string last_error(fovea_status status) {
  return status == FOVEA_OK ? "accepted" : fovea_last_error();
}

void fill(HostTensor& t, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < t.bytes() / 2; ++i)
    t.as<uint16_t>()[i] = float_to_bf16(normal(random));
}

fovea_attention_spec make_spec() {
  fovea_attention_spec spec;
  fovea_attention_spec_init(&spec);
  spec.num_heads = kHeads, spec.num_kv_heads = kKvHeads, spec.head_dim = kDim, spec.page_size = kPage;
  spec.dtype = kBf16;
  return spec;
}
constexpr fovea_limits kLimits = {sizeof(fovea_limits), kSeqs, 64, 160, 64, 0, FOVEA_TUNE_FOR_LIMITS};

class CApiCuda : public CudaTest {
 protected:
  /// A host tensor and its copy on the device.
  struct Pair {
    HostTensor host, there;
    DeviceBuffer memory;
  };
  Pair& pair(HostTensor host) {
    HostTensor there(host.t.dtype, host.shape);
    pairs_.push_back({std::move(host), std::move(there), {}});
    Pair& p = pairs_.back();
    p.memory = upload(
        std::vector<unsigned char>(p.host.as<unsigned char>(), p.host.as<unsigned char>() + p.host.bytes()));
    p.there.t.device = kGpu;
    p.there.t.data = p.memory.data();
    return p;
  }
  const fovea_tensor* on(fovea_device device, Pair& p) {
    return device.type == FOVEA_CUDA ? p.there.get() : p.host.get();
  }
  /// The device's copy, to compare with the host's.
  std::vector<unsigned char> fetch(const Pair& p) { return download<unsigned char>(p.memory); }
  static std::vector<unsigned char> bytes_of(Pair& p) {
    return {p.host.as<unsigned char>(), p.host.as<unsigned char>() + p.host.bytes()};
  }
  void expect_near(Pair& p, float tolerance, const char* what) {
    const std::vector<unsigned char> raw = fetch(p);
    const auto* got = reinterpret_cast<const uint16_t*>(raw.data());
    float worst = 0;
    for (size_t i = 0; i < raw.size() / 2; ++i) {
      const float error = std::fabs(bf16_to_float(got[i]) - bf16_to_float(p.host.as<uint16_t>()[i]));
      if (!(error <= worst)) worst = error;
    }
    EXPECT_LE(worst, tolerance) << what;
  }
  void* handle() { return stream().handle(); }

  /// One step's tensors on both sides. The page table has rows of five entries, of which the step uses four.
  struct Step {
    Pair *q, *k, *v, *out, *lse, *q_offsets, *kv_lens;
    int tokens = 0;
  };
  Step make_step(std::vector<int> n_q, std::vector<int> n_k, bool wide, unsigned seed) {
    Step s;
    std::vector<int64_t> offsets = {0};
    for (const int n : n_q)
      offsets.push_back(offsets.back() + n);
    s.tokens = static_cast<int>(offsets.back());
    const auto rows = [&](int heads, unsigned which) {
      HostTensor t(kBf16, {s.tokens, heads, kDim});
      fill(t, seed + which);
      return &pair(std::move(t));
    };
    const auto index = [&](const auto& values) {
      HostTensor t(wide ? kI64 : kI32, {static_cast<int64_t>(values.size())});
      for (size_t i = 0; i < values.size(); ++i) {
        if (wide)
          t.as<int64_t>()[i] = values[i];
        else
          t.as<int32_t>()[i] = static_cast<int32_t>(values[i]);
      }
      return &pair(std::move(t));
    };
    s.q = rows(kHeads, 0), s.k = rows(kKvHeads, 1), s.v = rows(kKvHeads, 2), s.out = rows(kHeads, 3);
    s.lse = &pair(HostTensor(kF32, {s.tokens, kHeads}));
    s.q_offsets = index(offsets), s.kv_lens = index(n_k);
    return s;
  }
  Pair& make_table(bool wide) {
    const int ids[] = {3, 7, 0, 9, 99, 10, 4, 1, 11, 99, 5, 2, 8, 6, 99};
    HostTensor t(wide ? kI64 : kI32, {kSeqs, 5});
    for (int i = 0; i < 15; ++i) {
      if (wide)
        t.as<int64_t>()[i] = ids[i];
      else
        t.as<int32_t>()[i] = ids[i];
    }
    Pair& p = pair(std::move(t));
    for (HostTensor* side : {&p.host, &p.there})
      side->shape = {kSeqs, 4}, side->strides = {5, 1};
    return p;
  }
  fovea_step step_of(const Step& s, Pair& table, fovea_device device, int phase) {
    fovea_step step = {};
    step.size = sizeof(step);
    step.phase = phase;
    step.num_tokens = s.tokens;
    step.q_offsets = on(device, *s.q_offsets), step.kv_lens = on(device, *s.kv_lens);
    step.page_table = on(device, table);
    return step;
  }
  fovea_layer layer_of(const Step& s, fovea_device device) {
    fovea_layer layer = {};
    layer.size = sizeof(layer);
    layer.q = on(device, *s.q), layer.out = on(device, *s.out), layer.lse = on(device, *s.lse);
    layer.k = on(device, *k_cache), layer.v = on(device, *v_cache);
    return layer;
  }
  std::string append(const Step& s, Pair& table, fovea_device device) {
    fovea_append_args args = {};
    args.size = sizeof(args);
    args.k = on(device, *s.k), args.v = on(device, *s.v);
    args.k_cache = on(device, *k_cache), args.v_cache = on(device, *v_cache);
    args.q_offsets = on(device, *s.q_offsets), args.kv_lens = on(device, *s.kv_lens);
    args.page_table = on(device, table);
    return last_error(fovea_append(&args, device.type == FOVEA_CUDA ? handle() : nullptr));
  }
  /// "accepted", or the error of the first call that fails.
  std::string attend(fovea_attention* attention, const Step& s, Pair& table, fovea_device device, int phase) {
    void* stream = device.type == FOVEA_CUDA ? handle() : nullptr;
    const fovea_step step = step_of(s, table, device, phase);
    const fovea_layer layer = layer_of(s, device);
    const std::string planned = last_error(fovea_attention_plan(attention, &step, nullptr, stream));
    return planned != "accepted" ? planned : last_error(fovea_attention_run(attention, &layer, stream));
  }
  fovea_attention* create(fovea_device device, uint32_t flags = 0) {
    const fovea_attention_spec spec = make_spec();
    fovea_attention* attention = nullptr;
    EXPECT_EQ(
        last_error(fovea_attention_create(&spec, &kLimits, nullptr, device, flags, nullptr, &attention)),
        "accepted");
    return attention;
  }
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    for (Pair** cache : {&k_cache, &v_cache}) {
      HostTensor t(kBf16, {kPages, kPage, kKvHeads, kDim});
      fill(t, 77);
      *cache = &pair(std::move(t));
    }
  }

  Pair *k_cache = nullptr, *v_cache = nullptr;

 private:
  std::deque<Pair> pairs_;
};

TEST_F(CApiCuda, DoesWhatTheCpuDoes) {
  fovea_attention *cpu = create(kCpu), *gpu = create(kGpu);
  ASSERT_NE(cpu, nullptr);
  ASSERT_NE(gpu, nullptr);
  for (const bool wide : {false, true}) {
    Pair& table = make_table(wide);
    const std::vector<std::pair<std::vector<int>, std::vector<int>>> steps = {{{20, 1, 33}, {20, 1, 33}},
                                                                              {{0, 17, 5}, {20, 18, 38}},
                                                                              {{1, 1, 1}, {21, 19, 39}},
                                                                              {{1, 0, 1}, {22, 19, 40}}};
    for (size_t i = 0; i < steps.size(); ++i) {
      const Step s = make_step(steps[i].first, steps[i].second, wide, static_cast<unsigned>(10 * i));
      for (const fovea_device device : {kCpu, kGpu}) {
        ASSERT_EQ(append(s, table, device), "accepted");
        ASSERT_EQ(attend(device.type == FOVEA_CUDA ? gpu : cpu, s, table, device,
                         i < 2 ? FOVEA_PREFILL : FOVEA_DECODE),
                  "accepted");
      }
      EXPECT_EQ(fetch(*k_cache), bytes_of(*k_cache)) << i;
      EXPECT_EQ(fetch(*v_cache), bytes_of(*v_cache)) << i;
      expect_near(*s.out, 0.02f, "attention");
      EXPECT_EQ(last_error(fovea_attention_check(gpu, kPages, handle())), "accepted");
    }
  }
  fovea_attention_destroy(cpu);
  fovea_attention_destroy(gpu);
}

/// Sparse MLA over records of floats and of bytes, in both phases.
TEST_F(CApiCuda, ListsOfKeysAreTheCpus) {
  constexpr int kMlaHeads = 20, kRecord = 576, kLatent = 512, kTopk = 70, kMlaPage = 64, kMlaPages = 8;
  const fovea_limits limits = {sizeof(fovea_limits), 2, 16, 400, 300, 0, FOVEA_TUNE_FOR_LIMITS};
  for (const bool bytes : {false, true}) {
    fovea_attention_spec spec = {};
    fovea_attention_spec_init(&spec);
    spec.size = sizeof(spec), spec.dtype = kBf16;
    spec.num_heads = kMlaHeads, spec.num_kv_heads = 1, spec.head_dim = kRecord, spec.v_head_dim = kLatent;
    spec.page_size = kMlaPage, spec.mla = 1, spec.sparse_topk = kTopk, spec.scale = 0.07f;
    if (bytes) spec.kv_dtype = "fp8_ds_mla";
    HostTensor records = bytes ? HostTensor(kU8, {kMlaPages, kMlaPage, 656})
                               : HostTensor(kBf16, {kMlaPages, kMlaPage, kRecord});
    if (!bytes) fill(records, 5);
    for (int64_t i = 0; bytes && i < kMlaPages * kMlaPage; ++i) {
      std::mt19937 random(static_cast<unsigned>(i));
      std::normal_distribution<float> normal;
      float x[kRecord];
      for (float& element : x)
        element = normal(random);
      store_ds_mla(x, kLatent, kRecord - kLatent,
                   reinterpret_cast<std::byte*>(records.as<unsigned char>()) + i * 656);
    }
    Pair& cache = pair(std::move(records));
    HostTensor pages(kI32, {2, 4});
    for (int i = 0; i < 8; ++i)
      pages.as<int32_t>()[i] = i * 5 % 8;
    Pair& table = pair(std::move(pages));
    for (const int phase : {FOVEA_DECODE, FOVEA_PREFILL}) {
      const int rows = phase == FOVEA_DECODE ? 2 : 9;
      HostTensor q_rows(kBf16, {rows, kMlaHeads, kRecord}), lists(kI32, {rows, kTopk}), offsets(kI32, {3}),
          lens(kI32, {2}), out_rows(kBf16, {rows, kMlaHeads, kLatent}), lse_rows(kF32, {rows, kMlaHeads});
      for (HostTensor* result : {&out_rows, &lse_rows})
        std::memset(result->as<unsigned char>(), 0xff, result->bytes());  // NaN
      fill(q_rows, 9);
      const int lengths[] = {250, 40};
      for (int row = 0; row < rows; ++row)
        for (int i = 0; i < kTopk; ++i) {
          const int n = lengths[row + 1 < rows ? 0 : 1], position = i * 3 + row;
          lists.as<int32_t>()[row * kTopk + i] = i % 7 == 3 || position >= n ? -1 : position;
        }
      offsets.as<int32_t>()[0] = 0, offsets.as<int32_t>()[1] = rows - 1, offsets.as<int32_t>()[2] = rows;
      lens.as<int32_t>()[0] = lengths[0], lens.as<int32_t>()[1] = lengths[1];
      Pair &q = pair(std::move(q_rows)), &chosen = pair(std::move(lists)),
           &q_offsets = pair(std::move(offsets)), &kv_lens = pair(std::move(lens)),
           &out = pair(std::move(out_rows)), &lse = pair(std::move(lse_rows));
      const auto run = [&](fovea_device device) {
        fovea_attention* attention = nullptr;
        EXPECT_EQ(last_error(fovea_attention_create(&spec, &limits, nullptr, device, 0, nullptr, &attention)),
                  "accepted");
        void* stream = device.type == FOVEA_CUDA ? handle() : nullptr;
        fovea_step step = {};
        step.size = sizeof(step);
        step.phase = phase, step.num_tokens = rows;
        step.q_offsets = on(device, q_offsets), step.kv_lens = on(device, kv_lens);
        step.page_table = on(device, table);
        fovea_layer layer = {};
        layer.size = sizeof(layer);
        layer.q = on(device, q), layer.out = on(device, out), layer.lse = on(device, lse);
        layer.k = on(device, cache), layer.chosen = on(device, chosen);
        EXPECT_EQ(last_error(fovea_attention_plan(attention, &step, nullptr, stream)), "accepted");
        EXPECT_EQ(last_error(fovea_attention_run(attention, &layer, stream)), "accepted");
        fovea_attention_destroy(attention);
      };
      run(kCpu);
      run(kGpu);
      expect_near(out, 0.02f, bytes ? "records of bytes" : "records of floats");
      const std::vector<unsigned char> there = fetch(lse);
      for (int i = 0; i < rows * kMlaHeads; ++i) {
        float got;
        std::memcpy(&got, there.data() + i * 4, 4);
        EXPECT_NEAR(got, lse.host.as<float>()[i], 0.02f);
      }
    }
  }
}

/// A captured plan and run follow the contents of the arrays, also of int64 ones that the graph narrows.
TEST_F(CApiCuda, IsCapturedInGraphs) {
  for (const bool wide : {false, true}) {
    fovea_attention *graphed = create(kGpu), *eager = create(kGpu);
    Pair& table = make_table(wide);
    const Step first = make_step({1, 1, 1}, {21, 19, 39}, wide, 1),
               second = make_step({1, 1, 1}, {5, 64, 1}, wide, 1);
    ASSERT_EQ(attend(eager, second, table, kGpu, FOVEA_DECODE), "accepted");
    const std::vector<unsigned char> expected = fetch(*second.out);
    ASSERT_EQ(cudaStreamBeginCapture(stream().handle(), cudaStreamCaptureModeGlobal), cudaSuccess);
    const std::string captured = attend(graphed, first, table, kGpu, FOVEA_DECODE);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream().handle(), &graph), cudaSuccess);
    ASSERT_EQ(captured, "accepted");
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    ASSERT_EQ(error_of(stream().copy(first.kv_lens->memory.data(), second.kv_lens->memory.data(),
                                     second.kv_lens->host.bytes())),
              "");
    ASSERT_EQ(error_of(stream().fill(first.out->memory.data(), 0xff, first.out->host.bytes())), "");
    ASSERT_EQ(cudaGraphLaunch(exec, stream().handle()), cudaSuccess);
    EXPECT_EQ(fetch(*first.out), expected);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    fovea_attention_destroy(graphed);
    fovea_attention_destroy(eager);
  }
}

TEST_F(CApiCuda, PreparesCapturesAndUpdatesThem) {
  fovea_attention *graphed = create(kGpu), *eager = create(kGpu);
  Pair& table = make_table(false);
  const Step first = make_step({1, 1, 1}, {21, 19, 39}, false, 1),
             second = make_step({1, 1, 1}, {5, 64, 1}, false, 1);
  ASSERT_EQ(attend(eager, second, table, kGpu, FOVEA_DECODE), "accepted");
  const std::vector<unsigned char> expected = fetch(*second.out);
  const fovea_step step = step_of(first, table, kGpu, FOVEA_DECODE);
  const fovea_layer layer = layer_of(first, kGpu);
  ASSERT_EQ(last_error(fovea_attention_prepare_capture(graphed, &step, nullptr, handle())), "accepted");
  ASSERT_EQ(cudaStreamBeginCapture(stream().handle(), cudaStreamCaptureModeGlobal), cudaSuccess);
  const std::string captured = last_error(fovea_attention_run(graphed, &layer, handle()));
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream().handle(), &graph), cudaSuccess);
  ASSERT_EQ(captured, "accepted");
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  ASSERT_EQ(error_of(stream().copy(first.kv_lens->memory.data(), second.kv_lens->memory.data(),
                                   second.kv_lens->host.bytes())),
            "");
  ASSERT_EQ(last_error(fovea_attention_update_capture(graphed, &step, handle())), "accepted");
  ASSERT_EQ(cudaGraphLaunch(exec, stream().handle()), cudaSuccess);
  EXPECT_EQ(fetch(*first.out), expected);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  fovea_attention_destroy(graphed);
  fovea_attention_destroy(eager);
}

TEST_F(CApiCuda, RefusesWhatIsElsewhere) {
  fovea_attention* gpu = create(kGpu);
  Pair& table = make_table(false);
  const Step s = make_step({1, 1, 1}, {21, 19, 39}, false, 1);
  fovea_step step = step_of(s, table, kGpu, FOVEA_DECODE);
  step.kv_lens = s.kv_lens->host.get();
  EXPECT_THAT(last_error(fovea_attention_plan(gpu, &step, nullptr, handle())),
              HasSubstr("kv_lens is on cpu; it must be on cuda:0"));
  fovea_attention_destroy(gpu);
  const fovea_attention_spec spec = make_spec();
  EXPECT_THAT(
      last_error(fovea_attention_create(&spec, &kLimits, nullptr, {FOVEA_CUDA, 63}, 0, nullptr, &gpu)),
      HasSubstr("CUDA device 63 does not exist"));
}

TEST_F(CApiCuda, TellsWhatTheDeviceSaw) {
  fovea_attention* gpu = create(kGpu, FOVEA_CHECK_PAGES);
  Pair& table = make_table(false);
  const Step s = make_step({1, 1, 1}, {21, 65, 39}, false, 1);
  fovea_step step = step_of(s, table, kGpu, FOVEA_DECODE);
  ASSERT_EQ(last_error(fovea_attention_plan(gpu, &step, nullptr, handle())), "accepted");
  EXPECT_THAT(last_error(fovea_attention_check(gpu, -1, handle())), HasSubstr("64"));
  const Step far = make_step({1, 1, 1}, {21, 64, 39}, true, 1);
  HostTensor beyond = longs({21, int64_t{1} << 40, 39});
  Pair& lens = pair(std::move(beyond));
  step = step_of(far, table, kGpu, FOVEA_DECODE);
  step.kv_lens = lens.there.get();
  ASSERT_EQ(last_error(fovea_attention_plan(gpu, &step, nullptr, handle())), "accepted");
  EXPECT_THAT(last_error(fovea_attention_check(gpu, -1, handle())),
              HasSubstr("kv_lens has a number beyond 32 bits"));
  const Step good = make_step({1, 1, 1}, {21, 64, 39}, false, 1);
  EXPECT_EQ(attend(gpu, good, table, kGpu, FOVEA_DECODE), "accepted");
  for (HostTensor* t : {&k_cache->there, &v_cache->there})
    t->shape[0] = 11;  // page 11 is the last of sequence 1
  EXPECT_THAT(attend(gpu, good, table, kGpu, FOVEA_DECODE), HasSubstr("11"));
  fovea_attention_destroy(gpu);
}

TEST_F(CApiCuda, CopiesGathersAndMerges) {
  Pair &from = pair(ints({3, 7})), &to = pair(longs({0, 11})), &slots = pair(longs({17, -1, 180}));
  Pair &k = pair(HostTensor(kF32, {3, kKvHeads, kDim})), &v = pair(HostTensor(kF32, {3, kKvHeads, kDim}));
  HostTensor parts(kBf16, {3, 5, kHeads, kDim}), lses(kF32, {3, 5, kHeads});
  fill(parts, 5);
  for (int i = 0; i < 3 * 5 * kHeads; ++i)
    lses.as<float>()[i] = i % 7 == 0 ? -INFINITY : static_cast<float>(i % 5);
  Pair &o = pair(std::move(parts)), &lse = pair(std::move(lses)),
       &out = pair(HostTensor(kBf16, {5, kHeads, kDim})), &out_lse = pair(HostTensor(kF32, {5, kHeads}));
  for (const fovea_device device : {kCpu, kGpu}) {
    void* stream = device.type == FOVEA_CUDA ? handle() : nullptr;
    EXPECT_EQ(last_error(fovea_copy_pages(on(device, *k_cache), on(device, *v_cache), on(device, from),
                                          on(device, to), stream)),
              "accepted");
    EXPECT_EQ(last_error(fovea_gather(on(device, *k_cache), on(device, *v_cache), 2, 0, on(device, slots),
                                      on(device, k), on(device, v), stream)),
              "accepted");
    EXPECT_EQ(last_error(fovea_merge_states(on(device, o), on(device, lse), on(device, out),
                                            on(device, out_lse), stream)),
              "accepted");
  }
  for (Pair* p : {k_cache, v_cache, &k, &v})
    EXPECT_EQ(fetch(*p), bytes_of(*p));
  expect_near(out, 0.02f, "merge");
}

}  // namespace
}  // namespace fovea
