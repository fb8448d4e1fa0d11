#include "lora/adapter_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "files/json_fields.h"
#include "fovea/lora.h"
#include "grammar/regex.h"

namespace fovea {
namespace {

using nlohmann::json;

constexpr double kMaxAlpha = 1e6;
constexpr size_t kMaxPatterns = 256, kMaxTargets = 1024;

// Keys without influence on inference, or that the tensors of the adapter show anyway.
constexpr std::array kIgnored = {"auto_mapping",   "base_model_name_or_path", "corda_config",
                                 "eva_config",     "exclude_modules",         "inference_mode",
                                 "layers_pattern", "layers_to_transform",     "loftq_config",
                                 "lora_dropout",   "megatron_config",         "megatron_core",
                                 "peft_version",   "qalora_group_size",       "revision",
                                 "runtime_config"};
constexpr std::array kRead = {"peft_type",      "r",
                              "lora_alpha",     "use_rslora",
                              "target_modules", "task_type",
                              "bias",           "rank_pattern",
                              "alpha_pattern",  "init_lora_weights",
                              "use_dora",       "modules_to_save"};

bool is_empty(const json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         (value.is_structured() && value.empty());
}

template <class List>
bool contains(const List& list, std::string_view text) {
  return std::ranges::find(list, text) != list.end();
}

/// Refuses what changes the model beyond its LoRA matrices.
void check_kind(const json& root, Fields& fields) {
  if (fields.find("peft_type") && !fields.is("peft_type", "LORA"))
    fields.refuse("peft_type", "only LORA adapters are supported", ErrorCode::unsupported);
  if (fields.find("task_type") && !fields.is("task_type", "CAUSAL_LM"))
    fields.refuse("task_type", "only adapters of CAUSAL_LM are supported", ErrorCode::unsupported);
  if (fields.find("bias") && !fields.is("bias", "none"))
    fields.refuse("bias", "adapters with biases are not supported; train with bias=\"none\"",
                  ErrorCode::unsupported);
  if (fields.boolean("use_dora", false))
    fields.refuse("use_dora", "DoRA adapters are not supported; merge it into the model with PEFT",
                  ErrorCode::unsupported);
  if (const json* saved = fields.find("modules_to_save"); saved && !is_empty(*saved))
    fields.refuse("modules_to_save",
                  "whole modules of an adapter are not supported; merge it into the model with PEFT",
                  ErrorCode::unsupported);
  if (const json* init = fields.find("init_lora_weights"); init && init->is_string())
    if (!contains(std::array{"gaussian", "orthogonal", "eva"}, init->get_ref<const std::string&>()))
      fields.refuse("init_lora_weights",
                    "this initialisation changes the model's own weights; convert the adapter with PEFT's "
                    "path_initial_model_for_weight_conversion",
                    ErrorCode::unsupported);
  for (const auto& [key, value] : root.items()) {
    if (!fields.ok()) return;
    if (contains(kIgnored, key) || contains(kRead, key) || is_empty(value)) continue;
    fields.refuse(key.c_str(), "this field is not supported; leave it out, or merge the adapter with PEFT",
                  ErrorCode::unsupported);
  }
}

void read_targets(Fields& fields, AdapterConfig& out) {
  const json* value = fields.find("target_modules");
  const char* help = "a list of module names, a regular expression or \"all-linear\" is needed";
  if (!value) return fields.refuse("target_modules", help);
  if (value->is_string()) {
    out.target_regex = value->get<std::string>();
    out.all_linear = out.target_regex == "all-linear" || out.target_regex == "all_linear";
    if (out.all_linear) out.target_regex.clear();
    if (out.target_regex.empty() && !out.all_linear) fields.refuse("target_modules", help);
    return;
  }
  if (!value->is_array() || value->empty() || value->size() > kMaxTargets)
    return fields.refuse("target_modules", help);
  for (const json& name : *value) {
    if (!name.is_string() || name.get_ref<const std::string&>().empty())
      return fields.refuse("target_modules", help);
    out.targets.push_back(name.get<std::string>());
  }
}

AdapterConfig::Patterns read_patterns(Fields& fields, const char* key, bool integers) {
  AdapterConfig::Patterns out;
  const json* value = fields.find(key);
  if (!value) return out;
  const std::string help = "an object of at most " + std::to_string(kMaxPatterns) + " module patterns with " +
                           (integers ? "ranks from 1 to " + std::to_string(kMaxLoraRank) : "numbers") +
                           " is needed";
  const auto refuse = [&] {
    fields.refuse(key, help);
    return AdapterConfig::Patterns();
  };
  if (!value->is_object() || value->size() > kMaxPatterns) return refuse();
  for (const auto& [pattern, number] : value->items()) {
    if (!number.is_number() || (integers && !number.is_number_integer())) return refuse();
    const double x = number.get<double>();
    if (!(integers ? x >= 1 && x <= kMaxLoraRank : std::abs(x) <= kMaxAlpha)) return refuse();
    out.emplace_back(pattern, x);
  }
  return out;
}

bool is_last_part(const std::string& module, const std::string& name) {
  return module == name || (module.size() > name.size() && module.ends_with(name) &&
                            module[module.size() - name.size() - 1] == '.');
}

}  // namespace

Result<AdapterConfig> parse_adapter_config(std::string_view text, const std::string& file) {
  FOVEA_TRY(root, parse_json_object(text, file));
  Status status;
  Fields fields(root, file, status);
  check_kind(root, fields);
  AdapterConfig out;
  out.file = file;
  out.rank = fields.small("r", 1, kMaxLoraRank);
  out.alpha = fields.number("lora_alpha", -kMaxAlpha, kMaxAlpha, 8.0);
  out.rslora = fields.boolean("use_rslora", false);
  read_targets(fields, out);
  out.rank_pattern = read_patterns(fields, "rank_pattern", true);
  out.alpha_pattern = read_patterns(fields, "alpha_pattern", false);
  FOVEA_RETURN_IF_ERROR(status);
  return out;
}

/// The compiled patterns of one config.
class AdapterRules::Regexes {
 public:
  Status add(const std::string& pattern, bool any_start, const std::string& where) {
    grammar::RegexOptions options;
    const bool from_start = !any_start || pattern.starts_with('^');
    auto compiled = grammar::compile_regex(expressions_, pattern, options);
    if (!compiled)
      return Error{compiled.error().code,
                   where + " has the pattern \"" + printable(pattern) + "\": " + compiled.error().message};
    grammar::Expr e = *compiled;
    if (!from_start) {
      auto prefix = grammar::compile_regex(expressions_, ".*\\.", options);
      if (!prefix) return prefix.error();
      e = expressions_.either(e, expressions_.concat(*prefix, e));
    }
    compiled_.push_back(e);
    if (expressions_.overflown()) return too_large(where);
    size_ = expressions_.size();
    return {};
  }
  Result<bool> matches(size_t index, const std::string& module, const std::string& where) {
    const bool matched = expressions_.matches(compiled_[index], module);
    if (expressions_.overflown()) return too_large(where).error();
    expressions_.shrink(size_);
    return matched;
  }

 private:
  static Status too_large(const std::string& where) {
    return invalid(where + " has patterns that need too much memory; give simpler ones");
  }

  grammar::Expressions expressions_;
  std::vector<grammar::Expr> compiled_;
  size_t size_ = 0;
};

namespace {
// Order in Regexes: the target's, if it is an expression, then those of ranks, then those of alphas.
size_t first_rank(const AdapterConfig& config) {
  return config.target_regex.empty() ? 0 : 1;
}
}  // namespace

Result<AdapterRules> AdapterRules::create(const AdapterConfig& config) {
  AdapterRules rules;
  rules.config_ = config;
  rules.matched_.resize(config.targets.size());
  rules.regexes_ = std::make_shared<Regexes>();
  if (!config.target_regex.empty())
    FOVEA_RETURN_IF_ERROR(rules.regexes_->add(config.target_regex, false, config.file + ": target_modules"));
  for (const auto& [pattern, rank] : config.rank_pattern)
    FOVEA_RETURN_IF_ERROR(rules.regexes_->add(pattern, true, config.file + ": rank_pattern"));
  for (const auto& [pattern, alpha] : config.alpha_pattern)
    FOVEA_RETURN_IF_ERROR(rules.regexes_->add(pattern, true, config.file + ": alpha_pattern"));
  return rules;
}

Result<bool> AdapterRules::targets(const std::string& module) {
  if (config_.all_linear) return true;
  if (!config_.target_regex.empty()) return regexes_->matches(0, module, config_.file + ": target_modules");
  bool any = false;
  for (size_t i = 0; i < config_.targets.size(); ++i)
    if (is_last_part(module, config_.targets[i])) any = matched_[i] = true;
  return any;
}

Result<AdapterRules::Module> AdapterRules::module(const std::string& module) {
  const auto value = [&](const AdapterConfig::Patterns& patterns, size_t first, const char* key,
                         double otherwise) -> Result<double> {
    const std::pair<std::string, double>* found = nullptr;
    for (size_t i = 0; i < patterns.size(); ++i) {
      FOVEA_TRY(matched, regexes_->matches(first + i, module, config_.file + ": " + key));
      if (!matched) continue;
      if (found && found->second != patterns[i].second)
        return invalid(config_.file + ": " + key + " has \"" + printable(found->first) + "\" and \"" +
                       printable(patterns[i].first) + "\", which both match " + module +
                       "; give each module one value");
      found = &patterns[i];
    }
    return found ? found->second : otherwise;
  };
  const size_t ranks = first_rank(config_);
  FOVEA_TRY(rank, value(config_.rank_pattern, ranks, "rank_pattern", config_.rank));
  FOVEA_TRY(alpha, value(config_.alpha_pattern, ranks + config_.rank_pattern.size(), "alpha_pattern",
                         config_.alpha));
  return Module{static_cast<int>(rank),
                static_cast<float>(alpha / (config_.rslora ? std::sqrt(rank) : rank))};
}

std::vector<std::string> AdapterRules::unmatched() const {
  std::vector<std::string> out;
  for (size_t i = 0; i < matched_.size(); ++i)
    if (!matched_[i]) out.push_back(config_.targets[i]);
  return out;
}

}  // namespace fovea
