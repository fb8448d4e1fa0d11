#pragma once
// Environment variables that do not stand for a flag: those with an effect, those of other engines that have
// a replacement here, and a check for misspelt FOVEA_ names.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention_config.h"
#include "fovea/result_fwd.h"

namespace fovea {

enum class VariableUse : uint8_t {
  acts,      ///< sets `key` of AttentionConfig
  replaced,  ///< of another engine: not applied, a warning names the replacement
  serve,     ///< read by fovea serve only; the value is a secret and never printed
  tool,      ///< for a script or test of this repository: the program ignores it
};

struct EnvironmentVariable {
  std::string_view name;
  VariableUse use = VariableUse::acts;
  std::string_view key = {};  ///< for `acts`
  std::string_view text;      ///< one line: its effect or its replacement
};

/// In order of precedence when several set the same key.
std::span<const EnvironmentVariable> environment_variables();

/// A known variable that is set.
struct EnvironmentNote {
  std::string name, value;  ///< the value on one line, truncated if long
  bool applied = false;
  std::string text;  ///< its effect, or what to use instead
};

/// The environment of this process, as "NAME=VALUE".
std::vector<std::string> process_environment();

/// A warning, with the nearest known name, for each name that begins with FOVEA_ and is neither in the table
/// nor in `flags`. Not an error: launchers may set such variables, as Kubernetes does for each Service.
std::vector<std::string> unknown_variables(const std::vector<std::string>& environment,
                                           const std::vector<std::string>& flags);

/// Sets keys that no flag has set (see config.sources), with the source "env NAME". An empty variable counts
/// as not set. Invalid values and contradicting variables are errors.
Result<std::vector<EnvironmentNote>> apply_environment(const std::vector<std::string>& environment,
                                                       AttentionConfig& config);

}  // namespace fovea
