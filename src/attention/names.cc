#include <utility>

#include "base/same_name.h"
#include "fovea/attention.h"

namespace fovea {

std::string_view to_string(Phase phase) {
  return phase == Phase::prefill ? "prefill" : "decode";
}

std::string_view to_string(AttentionType type) {
  switch (type) {
    case AttentionType::decoder: return "decoder";
    case AttentionType::encoder: return "encoder";
    case AttentionType::encoder_only: return "encoder_only";
    case AttentionType::encoder_decoder: return "encoder_decoder";
  }
  return "?";
}

std::string_view to_string(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu: return "cpu";
    case DeviceKind::cuda: return "cuda";
    case DeviceKind::rocm: return "rocm";
    case DeviceKind::ascend: return "ascend";
    case DeviceKind::xpu: return "xpu";
  }
  return "?";
}

std::string_view to_string(Feature feature) {
  switch (feature) {
    case Feature::window: return "window";
    case Feature::chunk: return "chunk";
    case Feature::softcap: return "softcap";
    case Feature::sink: return "sink";
    case Feature::sink_tokens: return "sink_tokens";
    case Feature::alibi: return "alibi";
    case Feature::spans: return "spans";
    case Feature::packed_mask: return "packed_mask";
    case Feature::verify: return "verify";
    case Feature::tree_mask: return "tree_mask";
    case Feature::non_causal: return "non_causal";
    case Feature::mla: return "mla";
    case Feature::sparse: return "sparse";
    case Feature::chunked_prefix: return "chunked_prefix";
    case Feature::dcp: return "dcp";
    case Feature::non_causal_dcp: return "non_causal_dcp";
    case Feature::pcp: return "pcp";
    case Feature::lse: return "lse";
    case Feature::native_page: return "native_page";
    case Feature::kv_x_packed: return "kv_x_packed";
    case Feature::kv_shuffle: return "kv_shuffle";
    case Feature::kv_sharing: return "kv_sharing";
    case Feature::kv_connector: return "kv_connector";
    case Feature::per_head_scales: return "per_head_scales";
    case Feature::output_quant: return "output_quant";
    case Feature::batch_invariance: return "batch_invariance";
    case Feature::adaptive_verification: return "adaptive_verification";
    case Feature::fp64_accumulate: return "fp64_accumulate";
    case Feature::count_: break;
  }
  return "?";
}

std::string_view to_string(Invariance level) {
  switch (level) {
    case Invariance::run: return "run";
    case Invariance::batch: return "batch";
    case Invariance::page_size: return "page_size";
    case Invariance::prefill_chunks: return "prefill_chunks";
    case Invariance::chunking: return "chunking";
    case Invariance::threads: return "threads";
    case Invariance::count_: break;
  }
  return "?";
}

std::string_view to_string(GraphSupport support) {
  switch (support) {
    case GraphSupport::never: return "NEVER";
    case GraphSupport::uniform_single_token_decode: return "UNIFORM_SINGLE_TOKEN_DECODE";
    case GraphSupport::uniform_batch: return "UNIFORM_BATCH";
    case GraphSupport::always: return "ALWAYS";
  }
  return "?";
}

std::string_view to_string(AttentionBackendEnum backend) {
  static constexpr std::string_view kNames[] = {
#define FOVEA_NAME(name) #name,
      FOVEA_ATTENTION_BACKENDS(FOVEA_NAME)
#undef FOVEA_NAME
  };
  return kNames[static_cast<size_t>(backend)];
}

std::string_view to_string(LayerKind kind) {
  switch (kind) {
    case LayerKind::full: return "full";
    case LayerKind::sliding_window: return "sliding_window";
    case LayerKind::chunked_local: return "chunked_local";
    case LayerKind::mla: return "mla";
    case LayerKind::sparse_mla: return "sparse_mla";
    case LayerKind::cross: return "cross";
    case LayerKind::encoder: return "encoder";
    case LayerKind::linear: return "linear";
    case LayerKind::count_: break;
  }
  return "?";
}

std::optional<LayerKind> parse_layer_kind(std::string_view name) {
  static constexpr std::pair<std::string_view, LayerKind> kNames[] = {
      {"full_attention", LayerKind::full},
      {"swa", LayerKind::sliding_window},
      {"chunked_local_attention", LayerKind::chunked_local},
      {"mla_attention", LayerKind::mla},
      {"sparse_mla_attention", LayerKind::sparse_mla},
      {"cross_attention", LayerKind::cross},
      {"encoder_only_attention", LayerKind::encoder},
      {"linear_attention", LayerKind::linear},
  };
  for (const auto& [text, kind] : kNames)
    if (same_name(name, text)) return kind;
  for (unsigned i = 0; i < static_cast<unsigned>(LayerKind::count_); ++i)
    if (const auto kind = static_cast<LayerKind>(i); same_name(name, to_string(kind))) return kind;
  return std::nullopt;
}

std::string_view to_string(LinearAttention linear) {
  switch (linear) {
    case LinearAttention::none: return "softmax";
    case LinearAttention::lightning: return "lightning";
    case LinearAttention::gated_delta: return "gated delta rule";
    case LinearAttention::pointwise: return "pointwise";
  }
  return "?";
}

LayerKind kind_of(const AttentionSpec& spec) {
  if (spec.linear != LinearAttention::none) return LayerKind::linear;
  if (spec.type == AttentionType::encoder_decoder) return LayerKind::cross;
  if (spec.type != AttentionType::decoder) return LayerKind::encoder;
  if (spec.use_mla) return spec.use_sparse ? LayerKind::sparse_mla : LayerKind::mla;
  if (spec.mask.chunk > 0) return LayerKind::chunked_local;
  if (spec.mask.window_left >= 0) return LayerKind::sliding_window;
  return LayerKind::full;
}

bool has_kv_pages(LayerKind kind) {
  return kind != LayerKind::encoder && kind != LayerKind::linear;
}

AttentionSpec with_settings(AttentionSpec spec, const AttentionConfig& config) {
  const bool decoder = spec.type == AttentionType::decoder && spec.linear == LinearAttention::none;
  if (!config.use_non_causal.value_or(false) || !decoder || !spec.mask.causal) return spec;
  spec.mask.causal = false;
  spec.mask.window_right = spec.mask.window_left;
  return spec;
}

std::string AttentionConfig::source(std::string_view key) const {
  const auto at = sources.find(key);
  return at == sources.end() ? "API" : at->second;
}

std::string BackendInfo::label() const {
  return version.empty() ? std::string(name) : std::string(name) + " (" + std::string(version) + ")";
}

int shared_bytes_of(int compute_capability) {
  // From compute capability 8.0 on, a block may use all shared memory of its SM except 1 KiB.
  switch (compute_capability) {
    case 0: return 0;
    case 70:
    case 72: return 96 << 10;
    case 75: return 64 << 10;
    case 80:
    case 87: return 163 << 10;
    case 86:
    case 89:
    case 120:
    case 121: return 99 << 10;
    case 90:
    case 100:
    case 103:
    case 110: return 227 << 10;
    default: return 48 << 10;
  }
}

namespace {

using NamedDevice = std::pair<std::string_view, DeviceInfo>;

NamedDevice nvidia(std::string_view name, int compute_capability, std::string_view products) {
  return {name,
          {DeviceKind::cuda, compute_capability, std::string(products), shared_bytes_of(compute_capability)}};
}

const std::vector<NamedDevice>& known_devices() {
  static const std::vector<NamedDevice> devices = {
      {"cpu", {DeviceKind::cpu, 0, "", 0}},
      nvidia("sm75", 75, "T4, RTX 20"),
      nvidia("sm80", 80, "A100"),
      nvidia("sm86", 86, "A40, RTX 30"),
      nvidia("sm87", 87, "Jetson Orin"),
      nvidia("sm89", 89, "L4, L40S, RTX 40"),
      nvidia("sm90", 90, "H100, H200"),
      nvidia("sm100", 100, "B200"),
      nvidia("sm103", 103, "B300"),
      nvidia("sm120", 120, "RTX 50"),
      nvidia("sm121", 121, "DGX Spark"),
      {"rocm", {DeviceKind::rocm, 0, "AMD Instinct", 0}},
      {"npu", {DeviceKind::ascend, 0, "Ascend", 0}},
      {"xpu", {DeviceKind::xpu, 0, "Intel GPU", 0}},
  };
  return devices;
}

}  // namespace

std::vector<std::string_view> device_names() {
  std::vector<std::string_view> names;
  for (const NamedDevice& device : known_devices())
    names.push_back(device.first);
  return names;
}

Result<DeviceInfo> parse_device(std::string_view name) {
  std::string allowed;
  for (const auto& [text, device] : known_devices()) {
    if (same_name(name, text)) return device;
    allowed.append(allowed.empty() ? "" : ", ").append(text);
  }
  return invalid("device '" + std::string(name) + "' is not known; allowed are " + allowed);
}

DType activation_dtype(const DeviceInfo& device, DType weights) {
  return device.kind == DeviceKind::cpu ? DType::f32 : weights;
}

std::string describe(const DeviceInfo& device) {
  std::string text(to_string(device.kind));
  if (device.compute_capability > 0)
    text.append(" ")
        .append(std::to_string(device.compute_capability / 10))
        .append(".")
        .append(std::to_string(device.compute_capability % 10));
  return text;
}

}  // namespace fovea
