// Attention settings from the command line and the environment, each with its source.
#include "base/log.h"
#include "cli/options.h"
#include "compat/launch/attention_keys.h"

namespace fovea::cli {
namespace {

/// Flags that are attention settings, and their keys.
constexpr std::pair<std::string_view, std::string_view> kKeys[] = {
    {"--attention-backend", "backend"},
    {"--prefill-attention-backend", "prefill_backend"},
    {"--decode-attention-backend", "decode_backend"},
    {"--page-size", "page_size"},
    {"--allow-page-override", "allow_page_override"},
    {"--batch-invariant", "batch_invariant"},
    {"--kv-cache-dtype", "kv_cache_dtype"},
    {"--kv-layout", "kv_layout"},
    {"--dtype", "dtype"},
};

}  // namespace

Status take_settings(LaunchLine line, const std::vector<std::string>& environment, ModelFlags& flags) {
  for (const auto& [flag, key] : kKeys)
    if (const auto given = line.spelled.find(flag); given != line.spelled.end())
      flags.attention.sources.emplace(key, given->second);
  flags.notes = std::move(line.notes);
  FOVEA_RETURN_IF_ERROR(apply_attention_arguments(line.attention, flags.attention, flags.notes));
  FOVEA_TRY(notes, apply_environment(environment, flags.attention));
  flags.environment = std::move(notes);
  return {};
}

Status check_settings(const ModelFlags& flags) {
  for (const FlagNote& note : flags.notes)
    if (note.warn) {
      FOVEA_LOG(warning) << note.flag << ": " << note.text;
    }
  for (const EnvironmentNote& note : flags.environment)
    if (!note.applied) {
      FOVEA_LOG(warning) << "environment variable " << note.name << "=" << note.value << ": " << note.text;
    }
  return check_refused(flags.notes);
}

}  // namespace fovea::cli
