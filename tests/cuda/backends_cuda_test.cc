// The CUDA backends through their public interface: against the CPU oracle, eager steps against graph
// replays, and what they refuse.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "backends/torch_native/torch_native.h"
#include "base/float16.h"
#include "base/float8.h"
#include "base/thread_pool.h"
#include "device/cuda/cuda_graph.h"
#include "device/cuda/cuda_test_support.h"
#include "device/stream.h"
#include "fovea/attention_backend.h"

namespace fovea {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kPages = 1200;

AttentionSpec spec_of(int page_size, DType dtype = DType::bf16) {
  AttentionSpec spec;
  spec.num_heads = 8;
  spec.num_kv_heads = 2;
  spec.head_dim = spec.v_head_dim = 128;
  spec.scale = 0.088f;
  spec.dtype = dtype;
  spec.page_size = page_size;
  return spec;
}

struct Lengths {
  int n_q, n_k;
};

/// A step in host memory. Keys and values that no row may see are NaN; page ids that must not be followed are
/// far out of range.
struct HostStep {
  AttentionSpec spec;
  Phase phase = Phase::decode;
  std::vector<int32_t> q_offsets = {0}, kv_lens, table;
  int64_t table_stride = 0;
  std::vector<uint16_t> q, k, v;

  HostStep(const AttentionSpec& s, Phase p, const std::vector<Lengths>& seqs, int stride = 0)
      : spec(s), phase(p), table_stride(stride) {
    const int page = spec.page_size;
    for (const Lengths& l : seqs) {
      q_offsets.push_back(q_offsets.back() + l.n_q);
      kv_lens.push_back(l.n_k);
      table_stride = std::max<int64_t>(table_stride, (l.n_k + page - 1) / page);
    }
    table.assign(seqs.size() * static_cast<size_t>(table_stride), std::numeric_limits<int32_t>::max());
    const size_t row = static_cast<size_t>(spec.num_kv_heads * spec.head_dim);
    const uint16_t nan = 0x7fff;  // a NaN in both 16-bit types
    k.assign(kPages * static_cast<size_t>(page) * row, nan);
    v = k;
    std::vector<int32_t> ids(kPages);
    std::iota(ids.begin(), ids.end(), 0);
    std::mt19937 random(7);
    std::ranges::shuffle(ids, random);
    size_t used = 0;
    for (size_t b = 0; b < seqs.size(); ++b)
      for (int j = 0; j < seqs[b].n_k; ++j) {
        int32_t& id = table[b * static_cast<size_t>(table_stride) + static_cast<size_t>(j / page)];
        if (j % page == 0) id = ids.at(used++);
        const size_t at = (static_cast<size_t>(id) * page + j % page) * row;
        fill(k, at, row, 100 * static_cast<uint32_t>(b) + 1, j);
        fill(v, at, row, 100 * static_cast<uint32_t>(b) + 2, j);
      }
    q.resize(static_cast<size_t>(q_offsets.back() * spec.num_heads * spec.head_dim));
    fill(q, 0, q.size(), 5, 0);
  }

  void fill(std::vector<uint16_t>& to, size_t at, size_t count, uint32_t stream, int key) const {
    std::minstd_rand random(stream * 7919 + static_cast<uint32_t>(key) + 1);
    for (size_t i = 0; i < count; ++i) {
      const float x = static_cast<float>(random() % 4096) / 1024.0f - 2.0f;
      to[at + i] = spec.dtype == DType::f16 ? float_to_fp16(x) : float_to_bf16(x);
    }
  }
  float value(uint16_t x) const { return spec.dtype == DType::f16 ? fp16_to_float(x) : bf16_to_float(x); }

  BatchMeta meta() const {
    BatchMeta m;
    m.phase = phase;
    m.tokens = q_offsets.back();
    m.q_offsets = q_offsets;
    m.kv_lens = kv_lens;
    m.page_table = table;
    m.page_table_stride = table_stride;
    return m;
  }
  AttentionArgs args() const {
    AttentionArgs a;
    const int64_t page = spec.page_size, d = spec.head_dim, row = spec.num_kv_heads * d;
    a.q_row_stride = a.out_row_stride = spec.num_heads * d;
    a.kv.dtype = resolve(KvCacheDType::auto_, spec.dtype);
    a.kv.page_size = spec.page_size;
    a.kv.k_page_stride = a.kv.v_page_stride = page * row;
    a.kv.k_slot_stride = a.kv.v_slot_stride = row;
    a.kv.k_head_stride = a.kv.v_head_stride = d;
    a.q = q.data();
    a.kv.k = k.data();
    a.kv.v = v.data();
    return a;
  }
  AttentionLimits limits() const {
    AttentionLimits l;
    l.max_seqs = static_cast<int>(kv_lens.size());
    l.max_tokens = q_offsets.back();
    for (const int32_t n : kv_lens) {
      l.max_kv_tokens += n;
      l.max_kv_len = std::max(l.max_kv_len, n);
    }
    return l;
  }
  size_t rows() const { return static_cast<size_t>(q_offsets.back()); }
};

struct Output {
  std::vector<uint16_t> out;
  std::vector<float> lse;
  bool operator==(const Output& o) const {
    return out == o.out && std::memcmp(lse.data(), o.lse.data(), lse.size() * sizeof(float)) == 0;
  }
};

/// The reference result: fp64, on the CPU.
Output oracle(const HostStep& step) {
  ThreadPool pool(1);
  Stream stream(pool);
  const auto backend = make_torch_native();
  AttentionSpec spec = step.spec;
  spec.fp64_accumulate = true;
  std::vector<std::byte> memory(*backend->workspace_bytes(spec, step.limits()) + 64);
  void* base = memory.data();
  size_t room = memory.size();
  std::align(64, 1, base, room);
  auto plan = backend->plan(spec, step.limits(), step.meta(), {static_cast<std::byte*>(base), room}, stream);
  EXPECT_TRUE(plan.ok()) << error_of(plan);
  Output o;
  o.out.resize(step.rows() * static_cast<size_t>(spec.num_heads * spec.v_head_dim));
  o.lse.resize(step.rows() * static_cast<size_t>(spec.num_heads));
  AttentionArgs args = step.args();
  args.out = o.out.data();
  args.lse = o.lse.data();
  EXPECT_EQ(error_of(backend->forward_extend(**plan, args, stream)), "");
  return o;
}

class CudaBackends : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    on_ = std::make_unique<Stream>(stream());
  }

  /// The backends of keys and values that run on this device, not those of latent attention; only versions of
  /// `name` if it is given.
  std::vector<const BackendRegistry::Entry*> entries(std::string_view name = "") {
    const int cc = device_.compute_capability;
    std::vector<const BackendRegistry::Entry*> out;
    for (const auto& entry : builtin_backends().entries()) {
      const Capability& c = entry.info->capability;
      if (c.device == DeviceKind::cuda && entry.create && !c.features.has(Feature::mla) &&
          (name.empty() || entry.info->name == name) && cc >= c.min_compute_capability &&
          (c.max_compute_capability == 0 || cc <= c.max_compute_capability))
        out.push_back(&entry);
    }
    return out;
  }
  static std::unique_ptr<AttentionBackend> flash() { return builtin_backends().find("FLASH_ATTN")->create(); }
  Stream& on() { return *on_; }

  /// A step in device memory.
  struct DeviceStep {
    DeviceBuffer q_offsets, kv_lens, table, q, k, v, out, lse;
    BatchMeta meta;
    AttentionArgs args;
  };

  template <class T>
  static std::span<const T> span_of(const DeviceBuffer& buffer) {
    return {buffer.as<const T>(), buffer.size() / sizeof(T)};
  }

  DeviceStep put(const HostStep& step) {
    DeviceStep d;
    d.q_offsets = upload(step.q_offsets);
    d.kv_lens = upload(step.kv_lens);
    d.table = upload(step.table);
    d.q = upload(step.q);
    d.k = upload(step.k);
    d.v = upload(step.v);
    d.out = poisoned<uint16_t>(step.rows() * static_cast<size_t>(step.spec.num_heads * step.spec.v_head_dim));
    d.lse = poisoned<float>(step.rows() * static_cast<size_t>(step.spec.num_heads));
    d.meta = step.meta();
    d.meta.q_offsets = span_of<int32_t>(d.q_offsets);
    d.meta.kv_lens = span_of<int32_t>(d.kv_lens);
    d.meta.page_table = span_of<int32_t>(d.table);
    d.args = step.args();
    d.args.q = d.q.data();
    d.args.kv.k = d.k.data();
    d.args.kv.v = d.v.data();
    d.args.out = d.out.data();
    d.args.lse = d.lse.as<float>();
    return d;
  }

  DeviceBuffer workspace_for(const AttentionBackend& backend, const AttentionSpec& spec,
                             const AttentionLimits& limits) {
    const auto bytes = backend.workspace_bytes(spec, limits);
    EXPECT_TRUE(bytes.ok()) << error_of(bytes);
    return poisoned<std::byte>(bytes.ok() ? *bytes : 0);
  }
  static Workspace span(const DeviceBuffer& buffer) { return {buffer.data(), buffer.size()}; }

  Status forward(AttentionBackend& backend, const Plan& plan, const DeviceStep& d) {
    return d.meta.phase == Phase::decode ? backend.forward_decode(plan, d.args, on())
                                         : backend.forward_extend(plan, d.args, on());
  }

  Output results(const DeviceStep& d) { return {download<uint16_t>(d.out), download<float>(d.lse)}; }

  Output eager(AttentionBackend& backend, const HostStep& step, const AttentionLimits& limits) {
    const DeviceStep d = put(step);
    const DeviceBuffer memory = workspace_for(backend, step.spec, limits);
    auto plan = backend.plan(step.spec, limits, d.meta, span(memory), on());
    EXPECT_TRUE(plan.ok()) << error_of(plan);
    if (!plan.ok()) return {};
    EXPECT_EQ(error_of(forward(backend, **plan, d)), "");
    EXPECT_EQ(error_of(backend.check_plan(**plan, kPages, on())), "");
    return results(d);
  }

  static void expect_near(const HostStep& step, const Output& got, const Output& want,
                          const std::string& what) {
    ASSERT_EQ(got.out.size(), want.out.size()) << what;
    float worst = 0, worst_lse = 0;
    for (size_t i = 0; i < want.out.size(); ++i) {
      const float distance = std::fabs(step.value(got.out[i]) - step.value(want.out[i]));
      worst = std::isnan(distance) ? INFINITY : std::max(worst, distance);
    }
    for (size_t i = 0; i < want.lse.size(); ++i) {
      if (got.lse[i] == want.lse[i]) continue;  // -inf too
      const float distance = std::fabs(got.lse[i] - want.lse[i]);
      worst_lse = std::isnan(distance) ? INFINITY : std::max(worst_lse, distance);
    }
    EXPECT_LE(worst, 0.02f) << what;  // values below 2 in bf16: 2^-7 from rounding the output, and from
                                      // rounding the probabilities
    EXPECT_LE(worst_lse, 1e-3f) << what;
  }

 private:
  std::unique_ptr<Stream> on_;
};

const std::vector<Lengths> kDecode = {{1, 1}, {1, 700}, {1, 2500}, {1, 0}, {1, 4096}, {1, 63}};
const std::vector<Lengths> kPrefill = {{100, 100}, {1, 2500}, {30, 700}, {0, 12}, {260, 900}};

TEST_F(CudaBackends, MatchTheOracle) {
  std::vector<std::pair<const BackendRegistry::Entry*, std::unique_ptr<AttentionBackend>>> backends;
  for (const auto* entry : entries())
    backends.emplace_back(entry, entry->create());
  ASSERT_GE(backends.size(), 5u);
  const std::vector<Lengths> small_decode = {{1, 1}, {1, 700}, {1, 0}, {1, 63}},
                             small_prefill = {{100, 100}, {30, 300}, {0, 12}};
  for (const int page : {1, 16})
    for (const bool general : {false, true})
      for (const Phase phase : {Phase::decode, Phase::prefill}) {
        AttentionSpec spec = spec_of(page);
        if (page == 1) spec.num_kv_heads = 4;  // so that FLASHINFER decodes on CUDA cores
        if (general) spec.mask.window_left = 300, spec.softcap = 20, spec.mask.sink_tokens = 4;
        if (page == 1 && general) spec.scale = -0.05f;
        const auto& seqs = page == 1 ? (phase == Phase::decode ? small_decode : small_prefill)
                                     : (phase == Phase::decode ? kDecode : kPrefill);
        const HostStep step(spec, phase, seqs);
        const Output want = oracle(step);
        for (const auto& [entry, backend] : backends)
          expect_near(step, eager(*backend, step, step.limits()), want,
                      entry->info->label() + " page " + std::to_string(page) + " " +
                          std::string(to_string(phase)) + (general ? " general" : ""));
      }
}

TEST_F(CudaBackends, ReplaysOfACaptureEqualEagerSteps) {
  for (const auto* entry : entries()) {
    const auto backend = entry->create();
    for (const Phase phase : {Phase::decode, Phase::prefill}) {
      const auto& most = phase == Phase::decode ? kDecode : kPrefill;
      std::vector<Lengths> other = most;
      std::swap(other[0].n_k, other[1].n_k);
      other[2].n_k = 1111;
      if (phase == Phase::prefill) other[0].n_q = 7, other[4].n_q = 311;
      other.pop_back();
      const AttentionSpec spec = spec_of(16);
      const HostStep captured(spec, phase, most, 300), later(spec, phase, other, 300);
      AttentionLimits limits = captured.limits();
      limits.max_kv_len = 4800;
      limits.max_kv_tokens = 20000;
      const DeviceStep d = put(captured);
      const DeviceBuffer memory = workspace_for(*backend, spec, limits);
      ASSERT_TRUE(backend->init_graph_state(spec, limits).ok());
      auto plan = backend->plan_for_capture(spec, limits, d.meta, span(memory), on());
      ASSERT_TRUE(plan.ok()) << error_of(plan);
      auto graph = CudaGraph::capture(stream(), [&](CudaStream&) { return forward(*backend, **plan, d); });
      ASSERT_TRUE(graph.ok()) << error_of(graph);

      const DeviceStep next = put(later);
      const auto move = [&](const DeviceBuffer& to, const DeviceBuffer& from) {
        EXPECT_EQ(error_of(stream().copy(to.data(), from.data(), from.size())), "");
      };
      move(d.q_offsets, next.q_offsets);
      move(d.kv_lens, next.kv_lens);
      move(d.table, next.table);
      move(d.q, next.q);
      move(d.k, next.k);
      move(d.v, next.v);
      EXPECT_EQ(error_of(stream().fill(d.out.data(), 0xff, d.out.size())), "");
      BatchMeta meta = d.meta;
      meta.tokens = later.q_offsets.back();
      meta.q_offsets = meta.q_offsets.first(later.q_offsets.size());
      meta.kv_lens = meta.kv_lens.first(later.kv_lens.size());
      ASSERT_EQ(error_of(backend->plan_for_replay(**plan, meta, on())), "");
      ASSERT_EQ(error_of(graph->replay(stream())), "");
      Output got = results(d);
      const size_t row = static_cast<size_t>(spec.num_heads * spec.v_head_dim);
      for (size_t i = later.rows() * row; i < got.out.size(); ++i)
        ASSERT_EQ(got.out[i], 0xffff) << "a row past the step's own was written";
      got.out.resize(later.rows() * row);
      got.lse.resize(later.rows() * static_cast<size_t>(spec.num_heads));
      EXPECT_TRUE(got == eager(*backend, later, limits)) << entry->info->label() << to_string(phase);
    }
  }
}

TEST_F(CudaBackends, APlanCapturedWithItsForwardFollowsTheArrays) {
  const auto backend = flash();
  const AttentionSpec spec = spec_of(16);
  std::vector<Lengths> other = kDecode;
  other[0].n_k = 3000, other[4].n_k = 1;
  const HostStep first(spec, Phase::decode, kDecode, 300), second(spec, Phase::decode, other, 300);
  AttentionLimits limits = first.limits();
  limits.max_kv_tokens = 20000;
  const DeviceStep d = put(first);
  const DeviceBuffer memory = workspace_for(*backend, spec, limits);
  std::unique_ptr<Plan> plan;
  auto graph = CudaGraph::capture(stream(), [&](CudaStream&) -> Status {
    FOVEA_TRY(made, backend->plan(spec, limits, d.meta, span(memory), on()));
    plan = std::move(made);
    return forward(*backend, *plan, d);
  });
  ASSERT_TRUE(graph.ok()) << error_of(graph);
  const DeviceStep next = put(second);
  for (const auto& [to, from] :
       {std::pair{&d.kv_lens, &next.kv_lens}, {&d.table, &next.table}, {&d.k, &next.k}, {&d.v, &next.v}})
    ASSERT_EQ(error_of(stream().copy(to->data(), from->data(), from->size())), "");
  ASSERT_EQ(error_of(graph->replay(stream())), "");
  EXPECT_TRUE(results(d) == eager(*backend, second, limits));
}

/// With programmatic dependent launch a kernel starts while the previous one finishes: what it reads must
/// have been written. Plans in one workspace follow each other without synchronisation in between.
TEST_F(CudaBackends, LayersAndPlansInARowFindTheirOwnSchedule) {
  std::vector<Lengths> turned = kDecode;
  std::reverse(turned.begin(), turned.end());
  for (const auto* entry : entries()) {
    const auto backend = entry->create();
    const AttentionSpec spec = spec_of(16);
    const HostStep steps[] = {{spec, Phase::decode, kDecode, 300}, {spec, Phase::decode, turned, 300}};
    AttentionLimits limits = steps[0].limits();
    limits.max_kv_tokens = 20000;
    limits.max_seqs = 64;  // so that the kernels for few sequences are not selected
    const DeviceBuffer memory = workspace_for(*backend, spec, limits);
    constexpr size_t kLayers = 3, kRounds = 4;
    std::vector<DeviceStep> layers;
    for (size_t i = 0; i < kRounds * 2 * kLayers; ++i)
      layers.push_back(put(steps[i / kLayers % 2]));
    std::vector<std::unique_ptr<Plan>> plans;
    const auto queue = [&](size_t first, size_t last) -> Status {
      for (size_t i = first; i < last; ++i) {
        if (i % kLayers == 0) {
          layers[i].meta.past_kv_ready = i % 2 == 0;
          FOVEA_TRY(plan, backend->plan(spec, limits, layers[i].meta, span(memory), on()));
          plans.push_back(std::move(plan));
        }
        FOVEA_RETURN_IF_ERROR(forward(*backend, *plans.back(), layers[i]));
      }
      return {};
    };
    const size_t half = layers.size() / 2;
    ASSERT_EQ(error_of(queue(0, half)), "");
    auto graph = CudaGraph::capture(stream(), [&](CudaStream&) { return queue(half, layers.size()); });
    ASSERT_TRUE(graph.ok()) << error_of(graph);
    ASSERT_EQ(error_of(graph->replay(stream())), "");
    const Output want[] = {eager(*backend, steps[0], limits), eager(*backend, steps[1], limits)};
    for (size_t i = 0; i < layers.size(); ++i)
      EXPECT_TRUE(results(layers[i]) == want[i / kLayers % 2]) << entry->info->label() << " forward " << i;
  }
}

TEST_F(CudaBackends, LimitsAndPageSizeChangeNoBit) {
  const HostStep small(spec_of(16), Phase::prefill, {{90, 400}, {300, 333}});
  const HostStep pages(spec_of(48), Phase::prefill, {{90, 400}, {300, 333}});
  AttentionLimits wider = small.limits();
  wider.max_seqs = 50, wider.max_tokens = 9000, wider.max_kv_tokens = 90000, wider.max_kv_len = 20000;
  for (const auto* entry : entries("FLASH_ATTN")) {
    const auto backend = entry->create();
    const Output want = eager(*backend, small, small.limits());
    EXPECT_TRUE(want == eager(*backend, pages, pages.limits())) << entry->info->label();
    EXPECT_TRUE(want == eager(*backend, small, wider)) << entry->info->label();
  }
}

TEST_F(CudaBackends, EqualScalesPerHeadEqualAScalePerTensor) {
  const auto backend = flash();
  AttentionSpec spec = spec_of(16);
  for (const Phase phase : {Phase::decode, Phase::prefill}) {
    HostStep step(spec, phase, phase == Phase::decode ? kDecode : kPrefill);
    step.spec.kv_dtype = KvCacheDType::fp8_e4m3;
    std::vector<uint8_t> bytes(step.k.size());
    for (size_t i = 0; i < bytes.size(); ++i) {
      const float x = step.value(step.k[i]);
      bytes[i] = std::isnan(x) ? 0x7f : float_to_e4m3(x);
    }
    DeviceStep d = put(step);
    const DeviceBuffer kv = upload(bytes);
    d.args.kv.dtype = KvCacheDType::fp8_e4m3;
    d.args.kv.k = d.args.kv.v = kv.data();
    d.args.kv.k_scale = 0.25f;
    d.args.kv.v_scale = 3.0f;
    const auto run = [&](const AttentionSpec& s) {
      const DeviceBuffer memory = workspace_for(*backend, s, step.limits());
      auto plan = backend->plan(s, step.limits(), d.meta, span(memory), on());
      EXPECT_TRUE(plan.ok()) << error_of(plan);
      EXPECT_EQ(error_of(forward(*backend, **plan, d)), "");
      return results(d);
    };
    const Output want = run(step.spec);
    const DeviceBuffer k_scales = upload(std::vector<float>{0.25f, 0.25f}),
                       v_scales = upload(std::vector<float>{3.0f, 6.0f});
    d.args.kv.k_scale = d.args.kv.v_scale = 1.0f;
    d.args.kv.k_scales = k_scales.as<float>();
    d.args.kv.v_scales = v_scales.as<float>();
    d.args.kv.scale_head_stride = 1;
    AttentionSpec by_head = step.spec;
    by_head.needs.insert(Feature::per_head_scales);
    const Output got = run(by_head);
    for (size_t i = 0; i < want.out.size(); ++i) {
      const bool second_head = i / 128 % 8 >= 4;
      ASSERT_NEAR(step.value(got.out[i]), (second_head ? 2.0f : 1.0f) * step.value(want.out[i]), 0.1f) << i;
    }
  }
}

class CudaBackendRefusals : public CudaBackends {
 protected:
  std::string plan_error(const BatchMeta& meta, const DeviceBuffer& memory, const AttentionLimits& limits,
                         const AttentionSpec& spec) {
    return error_of(flash()->plan(spec, limits, meta, span(memory), on()));
  }
};

TEST_F(CudaBackendRefusals, OfPlans) {
  const HostStep step(spec_of(16), Phase::decode, kDecode);
  const AttentionLimits limits = step.limits();
  const AttentionSpec& spec = step.spec;
  const DeviceStep d = put(step);
  const DeviceBuffer memory = workspace_for(*flash(), spec, limits);
  EXPECT_EQ(plan_error(d.meta, memory, limits, spec), "");

  const DeviceBuffer small = poisoned<std::byte>(memory.size() - 1);
  EXPECT_THAT(plan_error(d.meta, small, limits, spec),
              AllOf(HasSubstr("workspace of " + std::to_string(memory.size() - 1) + " bytes"),
                    HasSubstr("need " + std::to_string(memory.size()))));
  BatchMeta meta = d.meta;
  meta.kv_lens = step.kv_lens;
  EXPECT_THAT(plan_error(meta, memory, limits, spec), HasSubstr("BatchMeta::kv_lens lies in host memory"));
  meta = d.meta;
  meta.tokens = -1;
  EXPECT_THAT(plan_error(meta, memory, limits, spec), HasSubstr("BatchMeta::tokens is not given"));
  std::vector<std::byte> host(memory.size() + 64);
  void* base = host.data();
  size_t room = host.size();
  std::align(64, 1, base, room);
  EXPECT_THAT(
      error_of(flash()->plan(spec, limits, d.meta, {static_cast<std::byte*>(base), memory.size()}, on())),
      HasSubstr("the attention workspace lies in host memory"));
  ThreadPool pool(1);
  Stream cpu(pool);
  EXPECT_THAT(error_of(flash()->plan(spec, limits, d.meta, span(memory), cpu)), HasSubstr("a GPU stream"));
}

TEST_F(CudaBackendRefusals, OfAnotherDevicesMemory) {
  auto other = CudaStream::create(1);
  if (!other.ok()) GTEST_SKIP() << "SKIPPED: needs two GPUs";
  const HostStep step(spec_of(16), Phase::decode, kDecode);
  const DeviceStep d = put(step);
  const DeviceBuffer memory = workspace_for(*flash(), step.spec, step.limits());
  Stream there(*other);
  EXPECT_THAT(error_of(flash()->plan(step.spec, step.limits(), d.meta, span(memory), there)),
              HasSubstr("lies in the memory of CUDA device 0; it must be in the memory of CUDA device 1"));
}

TEST_F(CudaBackendRefusals, OfForwards) {
  const HostStep step(spec_of(16), Phase::decode, kDecode);
  const DeviceStep d = put(step);
  const auto backend = flash();
  const DeviceBuffer memory = workspace_for(*backend, step.spec, step.limits());
  auto plan = backend->plan(step.spec, step.limits(), d.meta, span(memory), on());
  ASSERT_TRUE(plan.ok()) << error_of(plan);
  const auto error = [&](auto change) {
    AttentionArgs args = d.args;
    change(args);
    return error_of(backend->forward_decode(**plan, args, on()));
  };
  EXPECT_THAT(error_of(backend->forward_extend(**plan, d.args, on())), HasSubstr("planned for decode"));
  EXPECT_THAT(error([&](AttentionArgs& a) { a.q = step.q.data(); }),
              HasSubstr("AttentionArgs::q lies in host memory"));
  EXPECT_THAT(error([](AttentionArgs& a) { a.kv.page_size = 8; }), HasSubstr("pages of 8 tokens"));
  EXPECT_THAT(error([](AttentionArgs& a) { a.kv.dtype = KvCacheDType::float16; }),
              HasSubstr("the cache has dtype float16; the step was planned for bfloat16"));
  EXPECT_THAT(error([](AttentionArgs& a) { a.kv.k_slot_stride += 4; }), HasSubstr("multiple of 8"));
  EXPECT_THAT(error([](AttentionArgs& a) { a.kv.k_scale = 0; }), HasSubstr("k_scale"));
  for (uint16_t x : download<uint16_t>(d.out))
    ASSERT_EQ(x, 0xffff);
}

TEST_F(CudaBackendRefusals, PageIdsOutOfRange) {
  HostStep step(spec_of(16), Phase::decode, kDecode);
  const int32_t last = step.table[static_cast<size_t>(step.table_stride) * 2 +
                                  156];  // the last page of the sequence of 2500 keys
  step.table[static_cast<size_t>(step.table_stride) * 2 + 156] = kPages + 5;
  const DeviceStep d = put(step);
  const auto backend = flash();
  const DeviceBuffer memory = workspace_for(*backend, step.spec, step.limits());
  auto plan = backend->plan(step.spec, step.limits(), d.meta, span(memory), on());
  ASSERT_TRUE(plan.ok()) << error_of(plan);
  EXPECT_THAT(error_of(backend->check_plan(**plan, kPages, on())),
              AllOf(HasSubstr(std::to_string(kPages + 5)), HasSubstr("0 to " + std::to_string(kPages - 1))));
  EXPECT_EQ(error_of(backend->check_plan(**plan, kPages + 6, on())), "");
  EXPECT_EQ(error_of(backend->check_plan(**plan, -1, on())), "") << "not looked at";
  EXPECT_LT(last, kPages);
}

/// Rows [first, last) of a result are NaN, and other NaNs than those that the outputs were poisoned with.
void expect_lost(const HostStep& step, const Output& got, int32_t first, int32_t last,
                 const std::string& what) {
  const auto row = static_cast<size_t>(step.spec.num_heads * step.spec.v_head_dim);
  const auto heads = static_cast<size_t>(step.spec.num_heads);
  size_t wrong = 0;
  for (size_t i = static_cast<size_t>(first) * row; i < static_cast<size_t>(last) * row; ++i)
    wrong += got.out[i] == 0xffff || !std::isnan(step.value(got.out[i]));
  for (size_t i = static_cast<size_t>(first) * heads; i < static_cast<size_t>(last) * heads; ++i)
    wrong += std::bit_cast<uint32_t>(got.lse[i]) == ~0u || !std::isnan(got.lse[i]);
  EXPECT_EQ(wrong, 0u) << what;
}

/// All other rows equal `want` bit for bit.
void expect_kept(const HostStep& step, Output got, const Output& want, int32_t first, int32_t last,
                 const std::string& what) {
  const auto row = static_cast<size_t>(step.spec.num_heads * step.spec.v_head_dim);
  const auto heads = static_cast<size_t>(step.spec.num_heads);
  std::copy(want.out.begin() + static_cast<ptrdiff_t>(first * row),
            want.out.begin() + static_cast<ptrdiff_t>(last * row),
            got.out.begin() + static_cast<ptrdiff_t>(first * row));
  std::copy(want.lse.begin() + static_cast<ptrdiff_t>(first * heads),
            want.lse.begin() + static_cast<ptrdiff_t>(last * heads),
            got.lse.begin() + static_cast<ptrdiff_t>(first * heads));
  EXPECT_TRUE(got == want) << what;
}

TEST_F(CudaBackendRefusals, OnlySequencesAtFaultAreLost) {
  for (const auto* entry : entries())
    for (const Phase phase : {Phase::decode, Phase::prefill}) {
      const std::string what = entry->info->label() + " " + std::string(to_string(phase));
      const auto backend = entry->create();
      const HostStep good(spec_of(16), phase, phase == Phase::decode ? kDecode : kPrefill);
      const AttentionLimits limits = good.limits();
      const Output want = eager(*backend, good, limits);
      const auto run = [&](const HostStep& step, const AttentionLimits& within, int64_t pages,
                           std::string& error) {
        DeviceStep d = put(step);
        d.meta.num_pages = pages;
        const DeviceBuffer memory = workspace_for(*backend, step.spec, within);
        auto plan = backend->plan(step.spec, within, d.meta, span(memory), on());
        EXPECT_TRUE(plan.ok()) << error_of(plan);
        EXPECT_EQ(error_of(forward(*backend, **plan, d)), "");
        error = error_of(backend->check_plan(**plan, -1, on()));
        return results(d);
      };
      std::string error;
      EXPECT_TRUE(run(good, limits, kPages, error) == want) << what;
      EXPECT_EQ(error, "") << what;
      constexpr size_t kSeq = 2;
      const int32_t first = good.q_offsets[kSeq], last = good.q_offsets[kSeq + 1];
      HostStep step = good;
      for (const int32_t length : {-1, limits.max_kv_len + 1, INT32_MAX}) {
        step.kv_lens[kSeq] = length;
        const Output got = run(step, limits, 0, error);
        EXPECT_THAT(error, HasSubstr("kv_len")) << what;
        expect_lost(good, got, first, last, what);
        expect_kept(good, got, want, first, last, what + " length " + std::to_string(length));
      }
      for (const int32_t id : {-1, kPages, 1 << 30}) {  // following the last would cause an illegal access
        step = good;
        step.table[kSeq * static_cast<size_t>(step.table_stride) + 20] = id;
        const Output got = run(step, limits, kPages, error);
        EXPECT_THAT(error, AllOf(HasSubstr("sequence 2, entry 20 is " + std::to_string(id)),
                                 HasSubstr("0 to " + std::to_string(kPages - 1))))
            << what;
        expect_lost(good, got, first, last, what);
        expect_kept(good, got, want, first, last, what + " page " + std::to_string(id));
      }
      step = good;
      step.q_offsets[1] = 400;
      step.q_offsets[2] = 0;
      expect_lost(good, run(step, limits, 0, error), 0, good.q_offsets.back(), what);
      EXPECT_THAT(error, HasSubstr("q_offsets")) << what;
      AttentionLimits fewer = limits;
      fewer.max_kv_tokens /= 2;  // limits() fit this step exactly
      expect_lost(good, run(good, fewer, 0, error), 0, good.q_offsets.back(), what);
      EXPECT_THAT(error, HasSubstr("sum of kv_lens")) << what;
    }
}

TEST_F(CudaBackendRefusals, LengthsBeyondTheTableShowInCheckPlan) {
  const AttentionSpec spec = spec_of(16);
  const auto backend = flash();
  const HostStep step(spec, Phase::decode, kDecode);
  DeviceStep d = put(step);
  d.meta.page_table_stride = 2;
  d.meta.page_table = d.meta.page_table.first(12);
  const DeviceBuffer memory = workspace_for(*backend, spec, step.limits());
  auto plan = backend->plan(spec, step.limits(), d.meta, span(memory), on());
  ASSERT_TRUE(plan.ok()) << error_of(plan);
  EXPECT_EQ(error_of(forward(*backend, **plan, d)), "");
  EXPECT_THAT(error_of(backend->check_plan(**plan, kPages, on())),
              AllOf(HasSubstr("0 to 32"), HasSubstr("page-table row")));
  expect_lost(step, results(d), 1, 3, "700 and 2500 keys in two pages");
}

/// q and out are [B, H, S, D] viewed as [B, S, H, D]: every S rows the next sequence begins.
TEST_F(CudaBackends, TransposedQueriesAndOutputsChangeNoBit) {
  for (const auto* entry : entries())
    for (const int n_q : {1, 5, 70, 128}) {
      const Phase phase = n_q == 1 ? Phase::decode : Phase::prefill;
      const auto backend = entry->create();
      const HostStep step(spec_of(16), phase, {{n_q, 700}, {n_q, 128}, {n_q, 2000}});
      const AttentionLimits limits = step.limits();
      const Output want = eager(*backend, step, limits);
      const int heads = step.spec.num_heads, dim = step.spec.head_dim;
      const auto at = [&](int seq, int row, int head) {  // index in [B, H, S, D]
        return static_cast<size_t>(((seq * heads + head) * n_q + row) * dim);
      };
      std::vector<uint16_t> turned(step.q.size());
      for (int b = 0; b < 3; ++b)
        for (int i = 0; i < n_q; ++i)
          for (int h = 0; h < heads; ++h)
            std::copy_n(step.q.begin() + ((b * n_q + i) * heads + h) * dim, dim,
                        turned.begin() + static_cast<ptrdiff_t>(at(b, i, h)));
      DeviceStep d = put(step);
      const DeviceBuffer q = upload(turned);
      d.args.q = q.data();
      d.args.q_row_stride = d.args.out_row_stride = dim;
      d.args.q_head_stride = d.args.out_head_stride = int64_t{n_q} * dim;
      d.args.q_block_rows = d.args.out_block_rows = n_q;
      d.args.q_block_stride = d.args.out_block_stride = int64_t{heads} * n_q * dim;
      const DeviceBuffer memory = workspace_for(*backend, step.spec, limits);
      auto plan = backend->plan(step.spec, limits, d.meta, span(memory), on());
      ASSERT_TRUE(plan.ok()) << error_of(plan);
      ASSERT_EQ(error_of(forward(*backend, **plan, d)), "");
      const Output got = results(d);
      Output rows = got;
      for (int b = 0; b < 3; ++b)
        for (int i = 0; i < n_q; ++i)
          for (int h = 0; h < heads; ++h)
            std::copy_n(got.out.begin() + static_cast<ptrdiff_t>(at(b, i, h)), dim,
                        rows.out.begin() + ((b * n_q + i) * heads + h) * dim);
      EXPECT_TRUE(rows == want) << entry->info->label() << " " << n_q << " rows";
    }
}

/// Keys and values of one head, or of one page, expanded with strides of 0.
TEST_F(CudaBackends, ExpandedKeysAreThoseOfTheirMemory) {
  for (const auto* entry : entries())
    for (const Phase phase : {Phase::decode, Phase::prefill})
      for (const bool heads : {true, false}) {
        const auto backend = entry->create();
        HostStep step(spec_of(64), phase,
                      phase == Phase::decode ? std::vector<Lengths>{{1, 200}, {1, 64}}
                                             : std::vector<Lengths>{{200, 200}, {130, 300}});
        const size_t dim = 128, row = 2 * dim, page = 64 * row;
        // The same keys and values materialised.
        for (std::vector<uint16_t>* cache : {&step.k, &step.v}) {
          const size_t first = static_cast<size_t>(step.table[0]) * page;
          for (size_t i = 0; i < cache->size(); ++i) {
            const size_t from = heads ? i / row * row + i % dim : first + i % page;
            if (heads ? i % row >= dim : i / page != first / page) (*cache)[i] = (*cache)[from];
          }
        }
        const Output want = eager(*backend, step, step.limits());
        DeviceStep d = put(step);
        if (heads) {
          d.args.kv.k_head_stride = d.args.kv.v_head_stride = 0;
        } else {
          const size_t bytes = static_cast<size_t>(step.table[0]) * page * 2;
          d.args.kv.k = static_cast<const char*>(d.args.kv.k) + bytes;
          d.args.kv.v = static_cast<const char*>(d.args.kv.v) + bytes;
          d.args.kv.k_page_stride = d.args.kv.v_page_stride = 0;
        }
        const DeviceBuffer memory = workspace_for(*backend, step.spec, step.limits());
        auto plan = backend->plan(step.spec, step.limits(), d.meta, span(memory), on());
        ASSERT_TRUE(plan.ok()) << error_of(plan);
        ASSERT_EQ(error_of(forward(*backend, **plan, d)), "");
        EXPECT_TRUE(results(d) == want)
            << entry->info->label() << " " << to_string(phase) << (heads ? " heads" : " pages");
      }
}

/// A NaN or an infinity in V affects at most rows of the same row tile, sequence and KV head, and none if no
/// row of the tile sees its key, such as a key of a recycled page left of every row's window.
TEST_F(CudaBackends, NonFiniteValuesStayInTheirTileSequenceAndHead) {
  constexpr int kMostTileRows = 256;  // the largest of any kernel, in packed rows
  const float inf = std::numeric_limits<float>::infinity();
  for (const auto* entry : entries())
    for (const Phase phase : {Phase::decode, Phase::prefill})
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), inf, -inf})
        for (const bool in_keys : {false, true}) {
          const std::string what = entry->info->label() + " " + std::string(to_string(phase)) +
                                   (in_keys ? " K " : " V ") + std::to_string(bad);
          const auto backend = entry->create();
          AttentionSpec spec = spec_of(16);
          spec.mask.window_left = 100;
          const std::vector<Lengths> seqs = phase == Phase::decode
                                                ? std::vector<Lengths>{{1, 300}, {1, 500}, {1, 90}}
                                                : std::vector<Lengths>{{300, 300}, {500, 500}, {90, 90}};
          const HostStep good(spec, phase, seqs);
          const Output want = eager(*backend, good, good.limits());
          const int group = spec.num_heads / spec.num_kv_heads;
          // In sequence 1 and KV head 1: a key that the last rows see, and one left of the last row's window,
          // in the same page and tile as keys that it sees.
          for (const int key : {450, 399 - 1}) {
            HostStep step = good;
            const size_t page = static_cast<size_t>(
                step.table[static_cast<size_t>(step.table_stride) + static_cast<size_t>(key / 16)]);
            const size_t at = ((page * 16 + static_cast<size_t>(key % 16)) * 2 + 1) * 128;
            for (size_t i = 0; i < 128; ++i)
              (in_keys ? step.k : step.v)[at + i] = float_to_bf16(bad);
            const Output got = eager(*backend, step, step.limits());
            const int first = good.q_offsets[1], n_q = seqs[1].n_q, n_k = seqs[1].n_k;
            // Rows of a row tile in which some row sees a key of the key tile that holds this key.
            constexpr int kMostTileKeys = 128;
            int spread = 0, missed = 0, reached = 0;
            for (int row = 0; row < good.q_offsets.back(); ++row)
              for (int head = 0; head < spec.num_heads; ++head) {
                const size_t o = static_cast<size_t>((row * spec.num_heads + head) * 128);
                const bool same = std::equal(got.out.begin() + static_cast<ptrdiff_t>(o),
                                             got.out.begin() + static_cast<ptrdiff_t>(o + 128),
                                             want.out.begin() + static_cast<ptrdiff_t>(o));
                reached += !same;
                const int i = row - first, position = i + n_k - n_q;
                const bool mine = i >= 0 && i < n_q && head / group == 1;
                const bool sees = mine && key <= position && key >= position - 100;
                const int reach = kMostTileRows / group + kMostTileKeys;
                const bool near = mine && position >= key - reach && position <= key + 100 + reach;
                spread += !same && !(in_keys ? sees : near);
                missed += same && sees;
              }
            EXPECT_EQ(spread, 0) << what << " of key " << key;
            EXPECT_EQ(missed, 0) << what << " of key " << key;
            if (phase == Phase::decode) {
              EXPECT_EQ(reached, key == 450 ? group : 0) << what;
            }
          }
        }
}

}  // namespace
}  // namespace fovea
