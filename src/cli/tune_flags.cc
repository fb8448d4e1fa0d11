// Flags of fovea tune, and --tune-file.
#include "cli/flags.h"

namespace fovea::cli {

void add_tune_file(CLI::App& app, ModelFlags& f) {
  takes_file(app.add_option("--tune-file", f.tune_file,
                            "On a GPU: choices that fovea tune has measured; none = use none (default: "
                            "$XDG_CACHE_HOME/fovea/tune.json, ~/.cache/fovea/tune.json)"));
}

void add_tune(CLI::App& root, TuneFlags& f) {
  auto& app = *root.add_subcommand(
      "tune",
      "Measure alternatives of a GPU's kernels that give the same bits, and keep the fastest in a file");
  start_group(app, "Tune");
  takes_folder(
      app.add_option("--model,--model-path", f.model.model,
                     "Folder in Hugging Face format, or a hub id found in the local cache: its shapes "
                     "are measured, its weights are not read (default: the demo model)"));
  add_dtype(app, f.model, "Of weights and activations");
  add_device(app, f.model);
  app.add_option("--max-rows", f.max_rows, "The most rows of a step that are measured")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add_tune_file(app, f.model);
  add_json_flag(app, f.model);
}

}  // namespace fovea::cli
