#pragma once
// The keys of --attention-config (vLLM's and Fovea's): the values of each, what it sets, and the keys refused
// because the kernel that they configure is not built.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compat/launch/launch_line.h"
#include "fovea/attention_config.h"
#include "fovea/result_fwd.h"

namespace fovea {

enum class KeyStatus : uint8_t {
  acts,
  deprecated,  ///< acts; the selection warns and names the replacement
  refused,     ///< no kernel here reads it; its default is accepted
};

struct AttentionKey {
  std::string_view name;
  std::string_view allowed;  ///< for messages: "0, 1, true, false"
  KeyStatus status = KeyStatus::acts;
  std::string_view text;  ///< one line: its effect, its replacement, or the kernel it configures
  /// For a refused key: values that are accepted because they have no effect.
  std::vector<std::string_view> neutral = {};
  /// Sets the key from its value as text; the error lists the allowed values. Null for a refused key.
  Status (*set)(AttentionConfig& config, const std::string& value) = nullptr;
};

std::span<const AttentionKey> attention_keys();

/// Applies all arguments. They must use one spelling, give each key once, and not mix JSON with dot paths.
/// `config.sources` gets the spelling of each key. Refused keys are added to `notes`; the selection warns
/// about deprecated ones. A key already in `config.sources` (set by its own flag) is an error.
Status apply_attention_arguments(const std::vector<AttentionArgument>& arguments, AttentionConfig& config,
                                 std::vector<FlagNote>& notes);

/// "0", "1", "true", "false", "yes", "no", "on", "off" in any letter case.
std::optional<bool> parse_switch(std::string_view text);

}  // namespace fovea
