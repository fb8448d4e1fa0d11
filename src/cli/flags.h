#pragma once
// The flags of each command. compat/launch/foreign_flags.h has the table of other engines' flags.
#include <CLI/CLI.hpp>
#include <string>

#include "cli/help.h"
#include "cli/options.h"
#include "cli/pull.h"

namespace fovea::cli {

/// Validator for an unsigned 64-bit option; CLI11 would clamp an out-of-range value to the largest number.
std::string check_uint64(const std::string& text);

/// --backend-library, for every command that selects backends.
void add_backend_library(CLI::App& app, std::vector<std::string>& files);
/// Flags that choose backends by name, phase, kind and key.
void add_attention_flags(CLI::App& app, ModelFlags& f);
/// The same plus flags of the cache, the scheduler and the weights. `model_names`: the spellings of --model.
void add_model_flags(CLI::App& app, ModelFlags& f, const std::string& model_names = "--model,--model-path");
/// --dtype; `text` is its description.
void add_dtype(CLI::App& app, ModelFlags& f, const std::string& text);
/// --device of a command that runs a model.
void add_device(CLI::App& app, ModelFlags& f);
void add_json_flag(CLI::App& app, ModelFlags& f);
/// --profile and --tune-file.
void add_profile_flags(CLI::App& app, ModelFlags& f);
void add_tune_file(CLI::App& app, ModelFlags& f);
void add_sampling_flags(CLI::App& app, SamplingFlags& f, ModelFlags& model);
void add_template_flags(CLI::App& app, ModelFlags& model, TemplateFlags& f);
void add_max_logprobs(CLI::App& app, ModelFlags& f);
/// Flags of LoRA adapters, for commands whose requests can choose one.
void add_lora_flags(CLI::App& app, ModelFlags& f);

void add_generate(CLI::App& root, GenerateFlags& f);
void add_chat(CLI::App& root, ChatFlags& f);
void add_score(CLI::App& root, ScoreFlags& f);
void add_embed(CLI::App& root, EmbedFlags& f);
void add_serve(CLI::App& root, ServeFlags& f);
void add_explain(CLI::App& root, ExplainFlags& f);
void add_tune(CLI::App& root, TuneFlags& f);
void add_pull(CLI::App& root, PullFlags& f);
void add_bench(CLI::App& root, BenchFlags& f);
void add_bench_serve(CLI::App& bench, BenchServeFlags& f);

}  // namespace fovea::cli
