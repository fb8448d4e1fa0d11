#include "compat/pages/example_layers.h"

#include <cmath>

#include "builtin/project_backends.h"
#include "fovea/attention.h"

namespace fovea::docs {
namespace {

AttentionSpec spec(int heads, int kv_heads, int head_dim, int v_head_dim) {
  AttentionSpec s;
  s.num_heads = heads;
  s.num_kv_heads = kv_heads;
  s.head_dim = head_dim;
  s.v_head_dim = v_head_dim;
  s.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  s.dtype = DType::bf16;
  return s;
}

/// Breaks lines at spaces.
std::string wrapped(std::string_view text) {
  constexpr size_t kColumns = 110;
  std::string out;
  while (text.size() > kColumns) {
    const size_t space = text.rfind(' ', kColumns);
    if (space == std::string_view::npos) break;
    out.append(text.substr(0, space)).append("\n");
    text.remove_prefix(space + 1);
  }
  return out.append(text);
}

}  // namespace

AttentionSpec llama_8b() {
  return spec(32, 8, 128, 128);
}

AttentionSpec gpt_oss_window() {
  AttentionSpec s = spec(64, 8, 64, 64);
  s.has_sink = true;
  s.mask.window_left = 127;
  s.mask.window_right = 0;
  return s;
}

AttentionSpec deepseek_v3() {
  AttentionSpec s = spec(128, 1, 576, 512);
  s.use_mla = true;
  s.mla_nope_head_dim = 128;
  s.mla_rope_head_dim = 64;
  s.mla_v_head_dim = 128;
  return s;
}

AttentionSpec deepseek_v32() {
  AttentionSpec s = deepseek_v3();
  s.use_sparse = true;
  return s;
}

Result<std::string> refusal(const AttentionConfig& config, const AttentionSpec& spec,
                            std::string_view device) {
  FOVEA_TRY(info, parse_device(device));
  const auto selection = select(config, spec, info, project_backends());
  if (selection)
    return invalid("a refusal example for docs/attention_backends.md is no longer refused: " +
                   explain(*selection));
  return wrapped("fovea: " + selection.error().message);
}

std::string resolved(std::string_view name, const AttentionSpec& spec, const DeviceInfo& device) {
  AttentionConfig config;
  config.backend = std::string(name);
  const auto considered = consider(config, std::span(&spec, 1), device, project_backends());
  if (!considered) return {};
  const auto& candidates = considered->kinds.front().decode.candidates;
  return candidates.empty() ? "" : candidates.front().backend->label();
}

}  // namespace fovea::docs
