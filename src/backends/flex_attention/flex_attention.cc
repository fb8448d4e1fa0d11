#include "backends/flex_attention/flex_attention.h"

#include <atomic>
#include <optional>
#include <string>

#include "attention/batch_check.h"
#include "attention/row.h"
#include "backends/flex_attention/mask_program.h"
#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "device/stream.h"
#include "flex/cpu_attention.h"

namespace fovea {
namespace {

constexpr int kMaxHeadDim = 1024;
constexpr size_t kAlignment = 64;
constexpr Isa kIsas[] = {Isa::generic, Isa::avx2, Isa::avx512};

constexpr Capability capability() {
  Capability c;
  c.dtypes = {DType::f32, DType::f16, DType::bf16};
  c.kv_dtypes = {KvCacheDType::auto_, KvCacheDType::float32, KvCacheDType::float16, KvCacheDType::bfloat16};
  c.page_sizes = IntSet::range(1, 1 << 20);
  c.preferred_page_size = 16;
  c.head_dims = IntSet::range(1, kMaxHeadDim);
  c.v_head_dims = IntSet::range(1, kMaxHeadDim);
  c.types = {AttentionType::decoder, AttentionType::encoder_only};
  c.features = {Feature::window, Feature::chunk,       Feature::softcap,    Feature::sink_tokens,
                Feature::alibi,  Feature::spans,       Feature::non_causal, Feature::lse,
                Feature::verify, Feature::native_page, Feature::kv_sharing};
  c.phases = {Phase::prefill, Phase::decode};
  c.invariance = {Invariance::run,      Invariance::batch,  Invariance::page_size, Invariance::prefill_chunks,
                  Invariance::chunking, Invariance::threads};
  c.device = DeviceKind::cpu;
  return c;
}
constexpr Capability kCapability = capability();

struct FlexPlan : Plan {
  AttentionSpec spec;
  int page_size = 0;
  flex::Program program;
  SpanRanges spans;
  std::vector<flex::Buffer> buffers;
  std::optional<flex::CpuAttention> step;
  Workspace scratch;
  mutable std::atomic<uint32_t> launched_isas{0};
  mutable std::atomic<KvCacheDType> launched_kv{KvCacheDType::auto_};

  std::vector<KernelName> launched() const override {
    std::vector<KernelName> names;
    for (const Isa isa : kIsas)
      if ((launched_isas >> static_cast<unsigned>(isa) & 1u) != 0)
        names.push_back({"flex", std::string(to_string(isa)) + " kv=" + std::string(to_string(launched_kv))});
    return names;
  }
};

class FlexAttentionBackend : public AttentionBackend {
 public:
  const BackendInfo& info() const noexcept override { return flex_attention_info(); }

  std::vector<KernelName> kernels(const DeviceInfo&) const override {
    std::vector<KernelName> names;
    for (const Isa isa : kIsas)
      for (const char* kv : {"float32", "float16", "bfloat16"})
        if (isa <= detect_isa()) names.push_back({"flex", std::string(to_string(isa)) + " kv=" + kv});
    return names;
  }

  Result<size_t> workspace_bytes(const AttentionSpec& spec, const AttentionLimits& limits) const override {
    FOVEA_RETURN_IF_ERROR(check_supported(info(), spec));
    FOVEA_RETURN_IF_ERROR(check_limits(limits));
    FOVEA_TRY(program, attention_program(spec));
    return flex::CpuAttention::scratch_bytes(program, spec, flex::CpuAttention::kMaxSlots);
  }

  Result<std::unique_ptr<Plan>> plan(const AttentionSpec& spec, const AttentionLimits& limits,
                                     const BatchMeta& meta, Workspace workspace, Stream&) override {
    FOVEA_TRY(needed, workspace_bytes(spec, limits));
    if (workspace.size() < needed)
      return invalid("FLEX_ATTENTION got a workspace of " + std::to_string(workspace.size()) +
                     " bytes; these limits need " + std::to_string(needed) +
                     ": allocate the size that workspace_bytes() returns");
    if (reinterpret_cast<uintptr_t>(workspace.data()) % kAlignment != 0)
      return invalid("FLEX_ATTENTION got a workspace that is not aligned to 64 bytes");
    auto plan = std::make_unique<FlexPlan>();
    plan->page_size = page_size_of(info(), spec);
    FOVEA_RETURN_IF_ERROR(check_batch(spec, limits, meta, plan->page_size));
    FOVEA_TRY(program, attention_program(spec));
    plan->spec = spec;
    plan->program = std::move(program);
    plan->scratch = workspace;
    if (meta.num_tokens() == 0) return std::unique_ptr<Plan>(std::move(plan));
    if (spec.has_alibi) plan->buffers.push_back({nullptr, 1, spec.num_heads, spec.num_heads});
    if (spec.mask.spans) {
      plan->spans = span_ranges(meta);
      for (const auto* array : {&plan->spans.first_row, &plan->spans.first, &plan->spans.last}) {
        const auto count = static_cast<int32_t>(array->size());
        plan->buffers.push_back({array->data(), 1, count, count});
      }
    }
    plan->step.emplace(plan->program, plan->buffers, plan->spec, meta);
    return std::unique_ptr<Plan>(std::move(plan));
  }

  Status forward_extend(const Plan& base, const AttentionArgs& args, Stream& stream) override {
    const auto& plan = static_cast<const FlexPlan&>(base);
    if (!plan.step) return {};
    FOVEA_RETURN_IF_ERROR(check_args(args, plan.spec, plan.page_size));
    flex::Buffer buffers[4];
    std::copy(plan.buffers.begin(), plan.buffers.end(), buffers);
    if (plan.spec.has_alibi) buffers[0].data = args.alibi_slopes;
    plan.step->run({buffers, plan.buffers.size()}, args, stream.pool(), plan.scratch, nullptr);
    plan.launched_isas |= 1u << static_cast<unsigned>(current_isa());
    plan.launched_kv = args.kv.dtype;
    return {};
  }

  /// Same kernels as extend: a row's bits do not depend on the number of rows in the step.
  Status forward_decode(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    return forward_extend(plan, args, stream);
  }
};

}  // namespace

const BackendInfo& flex_attention_info() {
  static const BackendInfo info = [] {
    BackendInfo i;
    i.name = "FLEX_ATTENTION";
    i.aliases = {"flex_attention", "flex"};
    i.version = "CPU";
    i.capability = kCapability;
    i.description = "Masks and scores as expressions, evaluated over strips of keys";
    i.families = {"flex"};
    return i;
  }();
  return info;
}

std::unique_ptr<AttentionBackend> make_flex_attention() {
  return std::make_unique<FlexAttentionBackend>();
}

}  // namespace fovea
