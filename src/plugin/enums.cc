#include "plugin/enums.h"

#include <bit>

namespace fovea::plugin {
namespace {

constexpr Enumerator<DType> kDTypes[] = {
    {FOVEA_BACKEND_F32, DType::f32}, {FOVEA_BACKEND_F16, DType::f16}, {FOVEA_BACKEND_BF16, DType::bf16}};

constexpr Enumerator<KvCacheDType> kKvDTypes[] = {
    {FOVEA_BACKEND_KV_F32, KvCacheDType::float32},
    {FOVEA_BACKEND_KV_F16, KvCacheDType::float16},
    {FOVEA_BACKEND_KV_BF16, KvCacheDType::bfloat16},
    {FOVEA_BACKEND_KV_FP8_E4M3, KvCacheDType::fp8_e4m3},
    {FOVEA_BACKEND_KV_FP8_E5M2, KvCacheDType::fp8_e5m2},
    {FOVEA_BACKEND_KV_INT8_PER_TOKEN_HEAD, KvCacheDType::int8_per_token_head}};

constexpr Enumerator<AttentionType> kTypes[] = {
    {FOVEA_BACKEND_DECODER, AttentionType::decoder},
    {FOVEA_BACKEND_ENCODER, AttentionType::encoder},
    {FOVEA_BACKEND_ENCODER_ONLY, AttentionType::encoder_only},
    {FOVEA_BACKEND_ENCODER_DECODER, AttentionType::encoder_decoder}};

constexpr Enumerator<Phase> kPhases[] = {{FOVEA_BACKEND_PREFILL, Phase::prefill},
                                         {FOVEA_BACKEND_DECODE, Phase::decode}};

constexpr Enumerator<DeviceKind> kDevices[] = {{FOVEA_BACKEND_CPU, DeviceKind::cpu},
                                               {FOVEA_BACKEND_CUDA, DeviceKind::cuda}};

constexpr Enumerator<GraphSupport> kGraphs[] = {
    {FOVEA_BACKEND_GRAPH_NEVER, GraphSupport::never},
    {FOVEA_BACKEND_GRAPH_UNIFORM_SINGLE_TOKEN_DECODE, GraphSupport::uniform_single_token_decode},
    {FOVEA_BACKEND_GRAPH_UNIFORM_BATCH, GraphSupport::uniform_batch},
    {FOVEA_BACKEND_GRAPH_ALWAYS, GraphSupport::always}};

/// The index of the only set bit.
constexpr int bit(uint64_t mask) {
  return std::countr_zero(mask);
}

// Feature::batch_invariance is absent: a run requires it, but backends claim it as a level of invariance.
constexpr Enumerator<Feature> kFeatures[] = {
    {bit(FOVEA_BACKEND_WINDOW), Feature::window},
    {bit(FOVEA_BACKEND_CHUNK), Feature::chunk},
    {bit(FOVEA_BACKEND_SOFTCAP), Feature::softcap},
    {bit(FOVEA_BACKEND_SINK), Feature::sink},
    {bit(FOVEA_BACKEND_SINK_TOKENS), Feature::sink_tokens},
    {bit(FOVEA_BACKEND_ALIBI), Feature::alibi},
    {bit(FOVEA_BACKEND_SPANS), Feature::spans},
    {bit(FOVEA_BACKEND_PACKED_MASK), Feature::packed_mask},
    {bit(FOVEA_BACKEND_VERIFY), Feature::verify},
    {bit(FOVEA_BACKEND_TREE_MASK), Feature::tree_mask},
    {bit(FOVEA_BACKEND_NON_CAUSAL), Feature::non_causal},
    {bit(FOVEA_BACKEND_MLA), Feature::mla},
    {bit(FOVEA_BACKEND_SPARSE), Feature::sparse},
    {bit(FOVEA_BACKEND_CHUNKED_PREFIX), Feature::chunked_prefix},
    {bit(FOVEA_BACKEND_DCP), Feature::dcp},
    {bit(FOVEA_BACKEND_NON_CAUSAL_DCP), Feature::non_causal_dcp},
    {bit(FOVEA_BACKEND_PCP), Feature::pcp},
    {bit(FOVEA_BACKEND_LSE), Feature::lse},
    {bit(FOVEA_BACKEND_NATIVE_PAGE), Feature::native_page},
    {bit(FOVEA_BACKEND_KV_X_PACKED), Feature::kv_x_packed},
    {bit(FOVEA_BACKEND_KV_SHARING), Feature::kv_sharing},
    {bit(FOVEA_BACKEND_KV_CONNECTOR), Feature::kv_connector},
    {bit(FOVEA_BACKEND_PER_HEAD_SCALES), Feature::per_head_scales},
    {bit(FOVEA_BACKEND_OUTPUT_QUANT), Feature::output_quant},
    {bit(FOVEA_BACKEND_ADAPTIVE_VERIFICATION), Feature::adaptive_verification},
    {bit(FOVEA_BACKEND_FP64_ACCUMULATE), Feature::fp64_accumulate},
    {bit(FOVEA_BACKEND_KV_SHUFFLE), Feature::kv_shuffle}};

constexpr Enumerator<Invariance> kInvariance[] = {
    {bit(FOVEA_BACKEND_INVARIANT_RUN), Invariance::run},
    {bit(FOVEA_BACKEND_INVARIANT_BATCH), Invariance::batch},
    {bit(FOVEA_BACKEND_INVARIANT_PAGE_SIZE), Invariance::page_size},
    {bit(FOVEA_BACKEND_INVARIANT_PREFILL_CHUNKS), Invariance::prefill_chunks},
    {bit(FOVEA_BACKEND_INVARIANT_CHUNKING), Invariance::chunking},
    {bit(FOVEA_BACKEND_INVARIANT_THREADS), Invariance::threads}};

}  // namespace

std::span<const Enumerator<DType>> abi_dtypes() {
  return kDTypes;
}
std::span<const Enumerator<KvCacheDType>> abi_kv_dtypes() {
  return kKvDTypes;
}
std::span<const Enumerator<AttentionType>> abi_types() {
  return kTypes;
}
std::span<const Enumerator<Phase>> abi_phases() {
  return kPhases;
}
std::span<const Enumerator<DeviceKind>> abi_devices() {
  return kDevices;
}
std::span<const Enumerator<GraphSupport>> abi_graphs() {
  return kGraphs;
}
std::span<const Enumerator<Feature>> abi_features() {
  return kFeatures;
}
std::span<const Enumerator<Invariance>> abi_invariance() {
  return kInvariance;
}

}  // namespace fovea::plugin
