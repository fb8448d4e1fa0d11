#pragma once
// The keys of --attention-config (vLLM's, and ours): what each takes, what it sets, and which are refused
// because the kernel that they turn is not built.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention_config.h"
#include "fovea/result.h"
#include "launch/launch_line.h"

namespace fovea {

enum class KeyStatus : uint8_t {
  acts,
  deprecated,  ///< acts; the selection warns, and says what to write instead
  refused,     ///< no kernel here reads it; its default is accepted
};

struct AttentionKey {
  std::string_view name;
  std::string_view allowed;  ///< for people: "0, 1, true, false"
  KeyStatus status = KeyStatus::acts;
  std::string_view text;  ///< one line: what it does, what replaces it, or whose knob it is
  /// Of a refused one: values that ask for nothing.
  std::vector<std::string_view> neutral = {};
  /// Sets the key from its value as text; the error says what is allowed. Null for a refused one.
  Status (*set)(AttentionConfig& config, const std::string& value) = nullptr;
};

std::span<const AttentionKey> attention_keys();

/// Applies all of them. They must have one spelling, each key once, and JSON and dot paths don't mix.
/// `config.sources` gets the spelling of each key. Refused keys are noted in `notes`; of deprecated ones the
/// selection warns.
/// A key that `config.sources` names already (it was set by a flag of its own) is an error.
Status apply_attention_arguments(const std::vector<AttentionArgument>& arguments, AttentionConfig& config,
                                 std::vector<FlagNote>& notes);

/// "0", "1", "true", "false", "yes", "no", "on", "off" in any letter case.
std::optional<bool> parse_switch(std::string_view text);

}  // namespace fovea
