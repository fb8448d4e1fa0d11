#pragma once
// The inputs of backend selection for one kind of layers, and the names of settings in messages.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention_backend.h"
#include "fovea/attention_config.h"
#include "fovea/attention_spec.h"

namespace fovea {

class Requests;

struct SelectionContext {
  const AttentionConfig& config;
  const BackendRegistry& registry;
  DeviceInfo device;
  LayerKind kind = LayerKind::full;
  bool only_kind = true;                 ///< the model has no other kind
  std::span<const AttentionSpec> specs;  ///< those of this kind, with all required features; at least one
  const Requests* requests = nullptr;    ///< backends named in the settings; null = none
  const AttentionSpec& spec() const { return specs.front(); }
  SelectionContext on(const DeviceInfo& other) const {
    SelectionContext context = *this;
    context.device = other;
    return context;
  }
};

/// How the user set `key`: "--page-size", "env X", or "AttentionConfig::page_size" without a source.
std::string setting(const AttentionConfig& config, std::string_view key);

std::string join(const std::vector<std::string>& items, std::string_view separator);
/// Letters and digits in lower case: "TRT-LLM Ragged" and "trtllm_ragged" are the same.
std::string squash(std::string_view name);
bool is_auto(std::string_view name);  ///< or empty

}  // namespace fovea
