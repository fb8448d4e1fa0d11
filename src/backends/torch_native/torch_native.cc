#include "backends/torch_native/torch_native.h"

#include <atomic>

#include "attention/batch_check.h"
#include "attention/row.h"
#include "device/stream.h"
#include "kernels/reference/attention.h"

namespace fovea {
namespace {

constexpr Capability capability() {
  Capability c;
  c.dtypes = {DType::f32, DType::f16, DType::bf16};
  c.kv_dtypes = {KvCacheDType::auto_,
                 KvCacheDType::float32,
                 KvCacheDType::float16,
                 KvCacheDType::bfloat16,
                 KvCacheDType::fp8_e4m3,
                 KvCacheDType::fp8_e5m2,
                 KvCacheDType::int8_per_token_head};
  c.page_sizes = IntSet::range(1, 1 << 20);
  c.preferred_page_size = 16;
  c.head_dims = IntSet::range(1, kReferenceMaxHeadDim);
  c.v_head_dims = IntSet::range(1, kReferenceMaxHeadDim);
  c.types = {AttentionType::decoder, AttentionType::encoder, AttentionType::encoder_only,
             AttentionType::encoder_decoder};
  c.features = {Feature::window,      Feature::chunk,          Feature::softcap, Feature::sink,
                Feature::sink_tokens, Feature::alibi,          Feature::spans,   Feature::packed_mask,
                Feature::tree_mask,   Feature::non_causal,     Feature::lse,     Feature::fp64_accumulate,
                Feature::kv_x_packed, Feature::kv_shuffle,     Feature::verify,  Feature::native_page,
                Feature::kv_sharing,  Feature::per_head_scales};
  c.phases = {Phase::prefill, Phase::decode};
  c.invariance = {Invariance::run,      Invariance::batch,  Invariance::page_size, Invariance::prefill_chunks,
                  Invariance::chunking, Invariance::threads};
  c.device = DeviceKind::cpu;
  return c;
}
constexpr Capability kCapability = capability();

constexpr Capability mla_capability() {
  Capability c = capability();
  c.types = {AttentionType::decoder};
  c.features = {Feature::mla, Feature::verify,      Feature::tree_mask,  Feature::non_causal,
                Feature::lse, Feature::native_page, Feature::kv_sharing, Feature::fp64_accumulate};
  return c;
}
constexpr Capability kMlaCapability = mla_capability();

/// The row's list replaces the mask.
constexpr Capability mla_sparse_capability() {
  Capability c = mla_capability();
  c.kv_dtypes.insert(KvCacheDType::fp8_ds_mla);
  c.features = {Feature::mla,         Feature::sparse,     Feature::verify,         Feature::lse,
                Feature::native_page, Feature::kv_sharing, Feature::fp64_accumulate};
  return c;
}
constexpr Capability kMlaSparseCapability = mla_sparse_capability();

struct TorchNativePlan : Plan {
  AttentionSpec spec;
  BatchMeta meta;
  int page_size = 0;
  mutable std::atomic<bool> ran{false};

  std::vector<KernelName> launched() const override {
    if (!ran) return {};
    return {{"reference", spec.fp64_accumulate ? "fp64" : "fp32"}};
  }
};

class TorchNative : public AttentionBackend {
 public:
  explicit TorchNative(const BackendInfo& info) : info_(info) {}
  const BackendInfo& info() const noexcept override { return info_; }

  /// 0: a row's state is on its thread's stack.
  Result<size_t> workspace_bytes(const AttentionSpec& spec, const AttentionLimits& limits) const override {
    FOVEA_RETURN_IF_ERROR(check_supported(info(), spec));
    FOVEA_RETURN_IF_ERROR(check_limits(limits));
    return size_t{0};
  }

  Result<std::unique_ptr<Plan>> plan(const AttentionSpec& spec, const AttentionLimits& limits,
                                     const BatchMeta& meta, Workspace, Stream&) override {
    FOVEA_RETURN_IF_ERROR(check_supported(info(), spec));
    auto plan = std::make_unique<TorchNativePlan>();
    plan->spec = spec;
    plan->meta = meta;
    plan->page_size = page_size_of(info(), spec);
    FOVEA_RETURN_IF_ERROR(check_batch(spec, limits, meta, plan->page_size));
    return std::unique_ptr<Plan>(std::move(plan));
  }

  Status forward_extend(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    const auto& p = static_cast<const TorchNativePlan&>(plan);
    if (p.meta.num_tokens() == 0) return {};
    FOVEA_RETURN_IF_ERROR(check_args(args, p.spec, p.page_size));
    reference_attention(p.spec, p.meta, args, stream.pool());
    p.ran = true;
    return {};
  }

  Status forward_decode(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    return forward_extend(plan, args, stream);
  }

 private:
  const BackendInfo& info_;
};

/// SGLang's row of its Torch Native backend.
const Capability& sglangs_claims() {
  using namespace rows;
  static const Capability row = sglang({.kv_dtypes = kKvBf16 | kFp8s,
                                        .page_sizes = IntSet::any(),
                                        .preferred_page_size = 1,
                                        .head_dims = IntSet::any(),
                                        .device = DeviceKind::cpu});
  return row;
}

}  // namespace

const BackendInfo& torch_native_info() {
  static const BackendInfo info = [] {
    BackendInfo i;
    i.name = "TORCH_NATIVE";
    i.aliases = {"torch_native", "torch_sdpa", "sdpa"};
    i.capability = kCapability;
    i.description = "Reference implementation in plain loops, optionally fp64; slow";
    i.documented = &sglangs_claims();
    i.mla_sibling = "TORCH_NATIVE_MLA";
    i.families = {"reference"};
    return i;
  }();
  return info;
}

std::unique_ptr<AttentionBackend> make_torch_native() {
  return std::make_unique<TorchNative>(torch_native_info());
}

const BackendInfo& torch_native_mla_info() {
  static const BackendInfo info = [] {
    BackendInfo i;
    i.name = "TORCH_NATIVE_MLA";
    i.capability = kMlaCapability;
    i.description = "MLA, absorbed, in plain loops, optionally fp64; slow";
    i.families = {"reference"};
    return i;
  }();
  return info;
}

std::unique_ptr<AttentionBackend> make_torch_native_mla() {
  return std::make_unique<TorchNative>(torch_native_mla_info());
}

const BackendInfo& torch_native_mla_sparse_info() {
  static const BackendInfo info = [] {
    BackendInfo i;
    i.name = "TORCH_NATIVE_MLA_SPARSE";
    i.capability = kMlaSparseCapability;
    i.description = "MLA, absorbed, over listed keys, in plain loops, optionally fp64; slow";
    i.supports_combination = check_records;
    i.families = {"reference"};
    return i;
  }();
  return info;
}

std::unique_ptr<AttentionBackend> make_torch_native_mla_sparse() {
  return std::make_unique<TorchNative>(torch_native_mla_sparse_info());
}

}  // namespace fovea
