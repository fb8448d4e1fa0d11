#pragma once
// Variables of the environment that are no flag's: those that act, those of other engines that something here
// replaces, and a check that none with our prefix is misspelt.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention_config.h"
#include "fovea/result.h"

namespace fovea {

enum class VariableUse : uint8_t {
  acts,      ///< sets `key` of AttentionConfig
  replaced,  ///< of another engine: not applied, a warning says what to use
  serve,     ///< read by fovea serve alone; the value is a secret, which is never printed
  tool,      ///< of a script or a test of this repository: the program ignores it
};

struct EnvironmentVariable {
  std::string_view name;
  VariableUse use = VariableUse::acts;
  std::string_view key = {};  ///< of `acts`
  std::string_view text;      ///< one line: what it does, what replaces it
};

/// In the order of precedence where several set one key.
std::span<const EnvironmentVariable> environment_variables();

/// A variable that was set and known.
struct EnvironmentNote {
  std::string name, value;  ///< the value on one line, cut where it is long
  bool applied = false;
  std::string text;  ///< what it did, or what to use instead
};

/// This process's, as "NAME=VALUE".
std::vector<std::string> process_environment();

/// A warning for each name that begins with FOVEA_ and is neither of the table nor in `flags`, with the
/// nearest one. No error: what starts a program may have variables of its own, as Kubernetes does for each
/// Service.
std::vector<std::string> unknown_variables(const std::vector<std::string>& environment,
                                           const std::vector<std::string>& flags);

/// Sets what no flag has set (config.sources), with the source "env NAME". An empty variable is one not set.
/// Values that are not allowed, and two variables that contradict each other, are errors.
Result<std::vector<EnvironmentNote>> apply_environment(const std::vector<std::string>& environment,
                                                       AttentionConfig& config);

}  // namespace fovea
