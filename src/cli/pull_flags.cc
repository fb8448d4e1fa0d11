#include "cli/flags.h"
#include "cli/pull.h"

namespace fovea::cli {

void add_pull(CLI::App& root, PullFlags& f) {
  auto& app = *root.add_subcommand(
      "pull", "Download a model from the hub into the local cache (HF_HOME, HF_TOKEN, HF_ENDPOINT)");
  start_group(app, "Download");
  app.add_option("model", f.model, "ORG/NAME; --model of the other commands finds it by this name afterwards")
      ->required();
  app.add_option("--revision", f.revision, "A branch, a tag or a commit")->capture_default_str();
  app.add_flag("--all", f.all,
               "All files, not only configuration, tokenizer, chat templates and safetensors weights");
  app.add_option("--jobs", f.jobs, "Files at a time")->check(CLI::Range(1, 16))->capture_default_str();
}

}  // namespace fovea::cli
