#include "cli/tuning.h"

#include <filesystem>

#include "base/log.h"
#include "tune/tune.h"

namespace fovea::cli {

Tuning find_tuning(const ModelFlags& flags, int index) {
  Tuning out;
  if (flags.tune_file == "none") return out;
  const std::string path = flags.tune_file.empty() ? tune::default_tune_file() : flags.tune_file;
  std::error_code error;
  if (path.empty() || (flags.tune_file.empty() && !std::filesystem::exists(path, error))) return out;
  out.file = path;
  auto file = tune::read_tune_file(path);
  const auto key = tune::key_of_device(index);
  if (!file)
    out.ignored = file.error().message;
  else if (!key)
    out.ignored = key.error().message;
  else
    out.ignored = why_not(*file, *key);
  if (out.ignored.empty()) out.choices = std::move(file->linear);
  return out;
}

void use_tuning(const ModelFlags& flags, const EngineConfig& config) {
  if (config.device.kind != DeviceKind::cuda) return;
  const Tuning tuning = find_tuning(flags, config.device_index);
  std::vector<cuda::LinearChoice> choices;
  for (const tune::TunedLinear& tuned : tuning.choices)
    choices.push_back(tuned.choice);
  if (!tuning.ignored.empty()) {
    FOVEA_LOG(warning) << "tune file " << tuning.file << " is ignored: " << tuning.ignored;
  } else if (!tuning.file.empty()) {
    FOVEA_LOG(info) << "tune file " << tuning.file << ": " << choices.size() << " choices";
  }
  cuda::set_linear_choices(std::move(choices));
}

}  // namespace fovea::cli
