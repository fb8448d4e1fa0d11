#pragma once
// adapter_config.json of PEFT (https://huggingface.co/docs/peft): which modules have matrices, of which rank
// and with which scale.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/result.h"

namespace fovea {

/// The settings that matter to inference. Module names are as in the model:
/// "model.layers.0.self_attn.q_proj".
struct AdapterConfig {
  /// Values for the modules that a pattern matches: a regular expression for the whole name, or for all of it
  /// after some point.
  using Patterns = std::vector<std::pair<std::string, double>>;

  std::string file;  ///< for messages
  int rank = 0;
  double alpha = 8;
  bool rslora = false;               ///< scale = alpha / sqrt(rank), not alpha / rank
  bool all_linear = false;           ///< every linear layer except the head
  std::vector<std::string> targets;  ///< names, whole or their last parts
  std::string target_regex;          ///< instead of `targets`: matches the whole name
  Patterns rank_pattern, alpha_pattern;
};

/// Errors name the file, the key and its value: settings that change the model in other ways than by LoRA
/// matrices (DoRA, biases, modules_to_save, ...), and keys that this version doesn't know, unless their
/// values are null, false or empty.
Result<AdapterConfig> parse_adapter_config(std::string_view text, const std::string& file);

/// Answers for modules by an AdapterConfig.
class AdapterRules {
 public:
  /// Compiles the patterns; one that grammar/regex.h doesn't support is an error.
  static Result<AdapterRules> create(const AdapterConfig& config);

  /// Whether the config has the module among its targets.
  Result<bool> targets(const std::string& module);
  struct Module {
    int rank = 0;
    float scale = 1;
  };
  /// Errors: two patterns match with different values.
  Result<Module> module(const std::string& module);
  /// Targets of a list that no module asked for so far has matched.
  std::vector<std::string> unmatched() const;

 private:
  class Regexes;
  std::shared_ptr<Regexes> regexes_;
  AdapterConfig config_;
  std::vector<bool> matched_;  // of config_.targets
};

}  // namespace fovea
