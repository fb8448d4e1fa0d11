#include "compat/launch/environment.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/edit_distance.h"
#include "base/printable.h"
#include "compat/launch/attention_keys.h"
#include "fovea/result.h"

namespace fovea {
namespace {

constexpr std::string_view kPrefix = "FOVEA_";
constexpr std::string_view kInvariant = "batch_invariant";
constexpr std::string_view kTensorCores = "flashinfer_use_tensor_cores";

constexpr EnvironmentVariable kVariables[] = {
    {"FOVEA_BATCH_INVARIANT", VariableUse::acts, kInvariant, "as --batch-invariant"},
    {"VLLM_BATCH_INVARIANT", VariableUse::acts, kInvariant, "as --batch-invariant"},
    {"FOVEA_FLASHINFER_USE_TENSOR_CORES", VariableUse::acts, kTensorCores,
     "as -ac.flashinfer_use_tensor_cores"},
    {"FLASHINFER_USE_TENSOR_CORES", VariableUse::acts, kTensorCores, "as -ac.flashinfer_use_tensor_cores"},
    {"MINISGL_FLASHINFER_USE_TENSOR_CORES", VariableUse::acts, kTensorCores,
     "as -ac.flashinfer_use_tensor_cores"},
    {"SGLANG_FLASHINFER_USE_TENSOR_CORE", VariableUse::acts, kTensorCores,
     "as -ac.flashinfer_use_tensor_cores"},
    {"FOVEA_API_KEY", VariableUse::serve, "", "of serve: a key that clients must send, as --api-key"},
    {"VLLM_API_KEY", VariableUse::serve, "", "of serve: a key that clients must send, as --api-key"},
    {"VLLM_ATTENTION_BACKEND", VariableUse::replaced, "", "--attention-backend"},
    {"VLLM_FLASH_ATTN_VERSION", VariableUse::replaced, "", "-ac.flash_attn_version"},
    {"VLLM_USE_TRTLLM_ATTENTION", VariableUse::replaced, "", "-ac.use_trtllm_attention"},
    {"VLLM_DISABLE_FLASHINFER_PREFILL", VariableUse::replaced, "", "-ac.mla_prefill_backend"},
    {"VLLM_USE_CUDNN_PREFILL", VariableUse::replaced, "", "-ac.mla_prefill_backend"},
    {"VLLM_USE_TRTLLM_RAGGED_DEEPSEEK_PREFILL", VariableUse::replaced, "", "-ac.mla_prefill_backend"},
    {"VLLM_KV_CACHE_LAYOUT", VariableUse::replaced, "", "--kv-layout"},
    {"FOVEA_BUILD_CUDA", VariableUse::tool, "", "run.sh and test.sh: 1 or 0 decides whether CUDA is built"},
    {"FOVEA_LIBRARY", VariableUse::tool, "", "the Python package: the libfovea.so that it loads"},
    {"FOVEA_CHECK_PAGES", VariableUse::tool, "", "the Python package: page tables are checked"},
    {"FOVEA_NUM_THREADS", VariableUse::tool, "", "libfovea.so: threads of its CPU backends"},
    {"FOVEA_TEST_SEED", VariableUse::tool, "", "attention_property_test: runs that seed alone"},
};

/// The value of `name`; nullopt if not set.
std::optional<std::string> find(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment)
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
  return std::nullopt;
}

/// Sets a boolean key of AttentionConfig.
void set(AttentionConfig& config, std::string_view key, bool value) {
  (key == kInvariant ? config.batch_invariant : config.flashinfer_use_tensor_cores) = value;
}

class Applier {
 public:
  explicit Applier(AttentionConfig& config) : config_(config) {}

  Result<EnvironmentNote> apply(const EnvironmentVariable& variable, const std::string& value) {
    const std::string shown = std::string(variable.name) + "=" + printable(value);
    const auto on = parse_switch(value);
    if (!on) return invalid("environment variable " + shown + ": allowed are 0, 1, true, false; or unset it");
    EnvironmentNote note{std::string(variable.name), printable(value), false, ""};
    const std::string key(variable.key);
    if (const auto mine = set_here_.find(key); mine != set_here_.end()) {
      if (mine->second.second != *on)
        return invalid("environment variables " + mine->second.first + " and " + shown +
                       " contradict each other; unset one of them");
      note.applied = true;
      note.text = std::string(variable.text);
      return note;
    }
    if (const auto flag = config_.sources.find(key); flag != config_.sources.end()) {
      note.text = "overridden by " + flag->second;
      return note;
    }
    set(config_, variable.key, *on);
    config_.sources[key] = "env " + note.name;
    set_here_[key] = {shown, *on};
    note.applied = true;
    note.text = std::string(variable.text);
    return note;
  }

 private:
  AttentionConfig& config_;
  std::map<std::string, std::pair<std::string, bool>> set_here_;
};

}  // namespace

std::span<const EnvironmentVariable> environment_variables() {
  return kVariables;
}

std::vector<std::string> process_environment() {
  std::vector<std::string> all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    all.emplace_back(*entry);
  return all;
}

std::vector<std::string> unknown_variables(const std::vector<std::string>& environment,
                                           const std::vector<std::string>& flags) {
  std::vector<std::string_view> known(flags.begin(), flags.end());
  for (const EnvironmentVariable& variable : kVariables)
    if (variable.name.starts_with(kPrefix)) known.push_back(variable.name);
  std::vector<std::string> warnings;
  for (const std::string& entry : environment) {
    const std::string name = entry.substr(0, entry.find('='));
    if (!name.starts_with(kPrefix) || std::ranges::find(known, name) != known.end()) continue;
    const std::string_view near = nearest_name(name, known);
    warnings.push_back("environment variable " + printable(name) + " is not known, and has no effect" +
                       (near.empty() ? "; FOVEA_ and the name of a flag sets that flag"
                                     : "; did you mean " + std::string(near) + "?"));
  }
  return warnings;
}

Result<std::vector<EnvironmentNote>> apply_environment(const std::vector<std::string>& environment,
                                                       AttentionConfig& config) {
  std::vector<EnvironmentNote> notes;
  Applier applier(config);
  for (const EnvironmentVariable& variable : kVariables) {
    const auto value = find(environment, variable.name);
    if (!value || value->empty() || variable.use == VariableUse::tool || variable.use == VariableUse::serve)
      continue;
    if (variable.use == VariableUse::acts) {
      FOVEA_TRY(note, applier.apply(variable, *value));
      notes.push_back(std::move(note));
    } else {
      notes.push_back({std::string(variable.name), printable(*value), false,
                       "not applied; " + std::string(variable.text) + " replaces it"});
    }
  }
  return notes;
}

}  // namespace fovea
