// Flags of LoRA adapters, of the commands that generate.
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "cli/flags.h"
#include "files/json_fields.h"

namespace fovea::cli {

void add_lora_flags(CLI::App& app, ModelFlags& f) {
  start_group(app, "LoRA adapters");
  app.add_option("--lora-modules,--lora-paths", f.lora_modules,
                 "Adapters in PEFT's format, each NAME=PATH, a path, or JSON with \"name\" and \"path\"; all "
                 "arguments up to the next flag");
  app.add_flag("--enable-lora", f.enable_lora, "Adapters may be loaded later; implied by --lora-modules");
  app.add_option("--max-lora-rank", f.lora.max_rank, "Largest rank of an adapter")
      ->check(CLI::Range(1, kMaxLoraRank))
      ->capture_default_str();
  app.add_option(
         "--max-loras,--max-loras-per-batch", f.lora.max_loras,
         "Different adapters in one step; requests with further ones wait (default: no limit; on a GPU as "
         "many as are loaded at the start, 4 to 32)")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--max-cpu-loras,--max-loaded-loras", f.lora.max_loaded,
                 "Adapters that are loaded at a time (default: no limit)")
      ->check(CLI::Range(1, 1 << 16));
}

Result<LoraModule> read_lora_module(const std::string& text) {
  LoraModule module;
  if (text.starts_with('{')) {
    FOVEA_TRY(json, parse_json_object(text, "--lora-modules"));
    Status status;
    Fields fields(json, "--lora-modules", status);
    for (const auto& [key, value] : json.items())
      if (key != "name" && key != "path" && key != "base_model_name")
        fields.refuse(key.c_str(), "allowed are name, path and base_model_name");
    module.name = fields.string("name", "");
    module.path = fields.string("path", "");
    FOVEA_RETURN_IF_ERROR(status);
  } else {
    const size_t sign = text.find('=');
    module.name = text.substr(0, sign);
    module.path = sign == text.npos ? text : text.substr(sign + 1);
  }
  if (module.name.empty() || module.path.empty())
    return invalid("--lora-modules has \"" + printable(text) +
                   "\"; give NAME=PATH, a path, or JSON with \"name\" and \"path\"");
  return module;
}

}  // namespace fovea::cli
