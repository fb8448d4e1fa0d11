#include "cli/run_settings.h"

#include <algorithm>
#include <filesystem>

#include "base/digest.h"
#include "base/printable.h"
#include "files/text_file.h"

namespace fovea::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostRead = size_t{64} << 20;  // bytes per file; tokenizers have up to 30 MB
constexpr std::string_view kRead[] = {".json", ".jinja", ".txt"};

/// Weights by size and date, as reading them would take longer than most runs; other files by content.
RunSettings model_files(const std::string& dir, const std::string& what = "model file ") {
  RunSettings files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string extension = entry.path().extension().string();
    const bool weights = extension == ".safetensors";
    if (!weights && std::ranges::find(kRead, extension) == std::end(kRead)) continue;
    Digest digest;
    if (weights) {
      digest.add(fs::file_size(entry.path(), error));
      digest.add(fs::last_write_time(entry.path(), error).time_since_epoch().count());
    } else if (auto text = read_text_file(entry.path().string(), kMostRead)) {
      digest.add(*text);
    }
    files.emplace_back(what + printable(entry.path().filename().string()),
                       "(digest " + std::to_string(digest.value()) + ")");
  }
  std::ranges::sort(files);
  return files;
}

void add_selection(RunSettings& settings, const Selection& selection) {
  for (const KindSelection& kind : selection.kinds)
    for (const Phase phase : {Phase::prefill, Phase::decode})
      if (const BackendInfo* backend = kind.of(phase).backend)
        settings.emplace_back(
            "backend of " + std::string(to_string(kind.kind)) + " " + std::string(to_string(phase)),
            backend->label());
  for (const ResolvedValue& value : selection.resolved)
    settings.emplace_back(value.key, printable(value.value));
}

}  // namespace

RunSettings run_settings(const std::string& command, const Engine& engine) {
  const EngineInfo& info = engine.info();
  RunSettings settings = {{"command", command},
                          {"version", FOVEA_VERSION},
                          {"architecture", printable(info.architecture)},
                          {"dtype", std::string(to_string(info.dtype))},
                          {"kv-cache-dtype", std::string(to_string(info.kv_dtype))},
                          {"max-model-len", std::to_string(info.max_seq_len)}};
  add_selection(settings, info.selection);
  std::ranges::move(model_files(info.model_dir), std::back_inserter(settings));
  for (const LoraInfo& lora : engine.loras())
    std::ranges::move(model_files(lora.path, "file of adapter " + printable(lora.name) + " "),
                      std::back_inserter(settings));
  return settings;
}

RunSettings run_settings(const std::string& command, const EmbedInfo& info) {
  RunSettings settings = {{"command", command},
                          {"version", FOVEA_VERSION},
                          {"architecture", printable(info.architecture)},
                          {"dtype", std::string(to_string(info.dtype))},
                          {"pooling", std::string(to_string(info.pooling))},
                          {"normalize", info.normalize ? "on" : "off"}};
  add_selection(settings, info.selection);
  std::ranges::move(model_files(info.model_dir), std::back_inserter(settings));
  return settings;
}

uint64_t request_digest(const GenerateRequest& request) {
  // A structured binding, so that a new member does not compile until it is handled here.
  const auto& [prompt_ids, encoder_ids, encoder_features, priority, client, cache_salt, on_start, sampling,
               prompt_logprobs, last_logits, lora] = request;
  const auto& [temperature, top_k, top_p, min_p, repetition_penalty, frequency_penalty, presence_penalty,
               logit_bias, allowed_token_ids, bad_words, seed, n, max_tokens, min_tokens, stop,
               stop_token_ids, ignore_eos, skip_special_tokens, include_stop_str_in_output, logprobs,
               constraint, timestamps] = sampling;
  (void)priority;  // affects when the request runs, not its result
  (void)client;
  (void)cache_salt;
  (void)on_start;
  Digest digest;
  digest.add(prompt_ids).add(encoder_ids).add(encoder_features).add(prompt_logprobs).add(last_logits);
  digest.add(lora);
  digest.add(temperature).add(top_k).add(top_p).add(min_p);
  digest.add(repetition_penalty).add(frequency_penalty).add(presence_penalty);
  digest.add(logit_bias.size());
  for (const LogitBias& bias : logit_bias)
    digest.add(bias.token_id).add(bias.bias);
  digest.add(allowed_token_ids).add(bad_words).add(seed).add(n).add(max_tokens).add(min_tokens).add(stop);
  digest.add(stop_token_ids).add(ignore_eos).add(skip_special_tokens).add(include_stop_str_in_output);
  if (constraint) {
    const auto& [kind, text, choices, white_space, strict, after, may_end_before, after_begin, instead,
                 name] = *constraint;
    (void)name;  // of messages
    digest.add(static_cast<int>(kind)).add(text).add(choices).add(white_space.value_or("default"));
    digest.add(strict).add(after).add(may_end_before).add(after_begin).add(instead);
  }
  if (timestamps)
    digest.add(timestamps->first)
        .add(timestamps->text_end)
        .add(timestamps->off)
        .add(timestamps->most_initial);
  return digest.add(logprobs).value();
}

}  // namespace fovea::cli
