// The rows of CPU_ATTN, CPU_MLA and CPU_MLA_SPARSE.
#include "attention/batch_check.h"
#include "attention/row.h"

#include "backends/cpu_attn/cpu_attn.h"

namespace fovea {
namespace {

constexpr Capability cpu_attn_capability() {
  Capability c;
  c.dtypes = {DType::f32, DType::f16, DType::bf16};
  c.kv_dtypes = {KvCacheDType::auto_,
                 KvCacheDType::float32,
                 KvCacheDType::float16,
                 KvCacheDType::bfloat16,
                 KvCacheDType::fp8_e4m3,
                 KvCacheDType::fp8_e5m2,
                 KvCacheDType::int8_per_token_head};
  c.page_sizes = IntSet::range(1, 1024);
  c.preferred_page_size = 16;
  c.head_dims = IntSet::range(16, 512, 8);
  c.v_head_dims = IntSet::range(16, 512, 8);
  c.types = {AttentionType::decoder, AttentionType::encoder, AttentionType::encoder_only,
             AttentionType::encoder_decoder};
  c.features = {Feature::window,         Feature::chunk,  Feature::softcap,     Feature::sink,
                Feature::sink_tokens,    Feature::alibi,  Feature::spans,       Feature::packed_mask,
                Feature::tree_mask,      Feature::lse,    Feature::non_causal,  Feature::kv_x_packed,
                Feature::kv_shuffle,     Feature::verify, Feature::native_page, Feature::kv_sharing,
                Feature::per_head_scales};
  c.phases = {Phase::prefill, Phase::decode};
  c.invariance = {Invariance::run,      Invariance::batch,  Invariance::page_size, Invariance::prefill_chunks,
                  Invariance::chunking, Invariance::threads};
  c.device = DeviceKind::cpu;
  return c;
}

/// The same kernels over records that hold K and V. What MLA models don't have isn't claimed.
constexpr Capability cpu_mla_capability() {
  Capability c = cpu_attn_capability();
  c.head_dims = IntSet::range(16, 576, 8);
  c.types = {AttentionType::decoder};
  c.features = {Feature::mla, Feature::verify,      Feature::tree_mask, Feature::non_causal,
                Feature::lse, Feature::native_page, Feature::kv_sharing};
  return c;
}

/// The same where each row lists its keys, which replaces the mask.
constexpr Capability cpu_mla_sparse_capability() {
  Capability c = cpu_mla_capability();
  c.kv_dtypes.insert(KvCacheDType::fp8_ds_mla);
  c.features = {Feature::mla, Feature::sparse,      Feature::verify,
                Feature::lse, Feature::native_page, Feature::kv_sharing};
  return c;
}

/// Keys and values of every head, which the engine expands from the records; see unabsorbed_spec().
constexpr Capability cpu_mla_prefill_capability() {
  Capability c = cpu_attn_capability();
  c.page_sizes = IntSet::any();
  c.types = {AttentionType::decoder};
  c.features = {Feature::mla};
  c.phases = {Phase::prefill};
  c.invariance = {Invariance::run, Invariance::batch, Invariance::page_size, Invariance::prefill_chunks,
                  Invariance::threads};
  return c;
}

/// vLLM's row.
const Capability& vllms_claims() {
  using namespace rows;
  static const Capability row = vllm({.dtypes = kFloats,
                                      .kv_dtypes = kKvAuto,
                                      .page_sizes = IntSet::any(),
                                      .head_dims = {32, 64, 80, 96, 112, 128, 160, 192, 224, 256},
                                      .types = kAllTypes,
                                      .features = {Feature::non_causal},
                                      .device = DeviceKind::cpu});
  return row;
}

}  // namespace

const BackendInfo& cpu_attn_info() {
  static const BackendInfo info = [] {
    BackendInfo i;
    i.name = "CPU_ATTN";
    i.aliases = {"cpu", "intel_amx"};
    i.capability = cpu_attn_capability();
    i.description = "Tiled kernels for AVX2 and AVX-512, split over keys and threads";
    i.documented = &vllms_claims();
    i.mla_sibling = "CPU_MLA";
    i.families = {"cpu"};
    return i;
  }();
  return info;
}

const BackendInfo& cpu_mla_prefill_info() {
  static const BackendInfo info = [] {
    BackendInfo i;
    i.name = "CPU_ATTN";
    i.aliases = {"cpu_attn"};
    i.capability = cpu_mla_prefill_capability();
    i.description = "MLA prefill without absorption on CPUs, by CPU_ATTN's kernels";
    i.families = {"cpu"};
    return i;
  }();
  return info;
}

const BackendInfo& cpu_mla_info() {
  static const BackendInfo info = [] {
    BackendInfo i;
    i.name = "CPU_MLA";
    i.capability = cpu_mla_capability();
    i.description = "MLA, absorbed, on CPUs: each record is read once for all heads, as key and as value";
    i.families = {"cpu_mla"};
    return i;
  }();
  return info;
}

const BackendInfo& cpu_mla_sparse_info() {
  static const BackendInfo info = [] {
    BackendInfo i;
    i.name = "CPU_MLA_SPARSE";
    i.capability = cpu_mla_sparse_capability();
    i.description = "MLA, absorbed, on CPUs, over the keys that an indexer chooses for each row";
    i.families = {"cpu_mla_sparse"};
    i.supports_combination = check_records;
    return i;
  }();
  return info;
}

}  // namespace fovea
