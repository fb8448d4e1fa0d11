// SGLang's --speculative-* flags.
#include <algorithm>

#include "base/same_name.h"
#include "speculative/launch.h"

namespace fovea {
namespace {

constexpr int kDraftTokens = 4;   // SGLang's, the root included, where nothing is given
constexpr int kNgramWindow = 12;  // likewise

Status refuse_lossy(const char* flag, const std::optional<double>& threshold) {
  if (!threshold || *threshold == 1) return {};
  return invalid(std::string(flag) + " is " + std::to_string(*threshold) +
                 "; below 1 it accepts drafts that the model would not have sampled, which changes answers; "
                 "leave it out or give 1");
}

/// Flags that the method has no use for.
Status refuse_of_others(const SglangSpeculative& flags, DraftMethod method) {
  const bool looks_up = method == DraftMethod::ngram;
  const auto useless = [&](const char* flag, const char* for_what) {
    return invalid(std::string(flag) + " is given with --speculative-algorithm " + *flags.algorithm +
                   ", but " + for_what + "; leave it out");
  };
  if (!looks_up && flags.ngram_min_match_window_size)
    return useless("--speculative-ngram-min-match-window-size", "only NGRAM looks tokens up");
  if (!looks_up && flags.ngram_max_match_window_size)
    return useless("--speculative-ngram-max-match-window-size", "only NGRAM looks tokens up");
  if (looks_up && flags.draft_attention_backend)
    return useless("--speculative-draft-attention-backend", "its drafts need no attention");
  return {};
}

Result<int> drafts_of(const SglangSpeculative& flags) {
  if (flags.eagle_topk.value_or(1) != 1)
    return invalid("--speculative-eagle-topk is " + std::to_string(*flags.eagle_topk) +
                   "; it must be 1: " + kNoTrees);
  const int tokens = flags.num_draft_tokens.value_or(flags.num_steps ? *flags.num_steps + 1 : kDraftTokens);
  if (flags.num_steps && tokens != *flags.num_steps + 1)
    return invalid("--speculative-num-draft-tokens is " + std::to_string(tokens) +
                   ", but --speculative-num-steps is " + std::to_string(*flags.num_steps) +
                   "; a chain has one token more than steps: its root. Give one of the two");
  if (tokens < 2 || tokens > kMaxDrafts + 1)
    return invalid("--speculative-num-draft-tokens is " + std::to_string(tokens) + "; it must be 2 to " +
                   std::to_string(kMaxDrafts + 1) + ", the root included, so that a step verifies at most " +
                   std::to_string(kMaxDrafts + 1) + " rows of a sequence");
  return tokens - 1;
}

}  // namespace

Result<SpeculativeConfig> speculative_from_sglang(const SglangSpeculative& flags) {
  SpeculativeConfig config;
  if (!flags.given()) return config;
  if (!flags.algorithm)
    return invalid(
        "flags of speculative decoding are given without --speculative-algorithm; add NGRAM, STANDALONE, "
        "EAGLE, EAGLE3 or NEXTN");
  const std::string& algorithm = *flags.algorithm;
  if (same_name(algorithm, "none")) return config;
  FOVEA_RETURN_IF_ERROR(refuse_lossy("--speculative-accept-threshold-single", flags.accept_threshold_single));
  FOVEA_RETURN_IF_ERROR(refuse_lossy("--speculative-accept-threshold-acc", flags.accept_threshold_acc));
  if (same_name(algorithm, "NGRAM"))
    config.method = DraftMethod::ngram;
  else if (same_name(algorithm, "STANDALONE"))
    config.method = DraftMethod::draft_model;
  else if (same_name(algorithm, "EAGLE3"))
    config.method = DraftMethod::eagle3;
  else if (same_name(algorithm, "NEXTN"))
    config.method = DraftMethod::mtp;
  else if (same_name(algorithm, "EAGLE"))  // without a head, the model's own checkpoint has it
    config.method = flags.draft_model_path ? DraftMethod::eagle : DraftMethod::mtp;
  else
    return invalid(
        "--speculative-algorithm " + algorithm +
        " is not built; NGRAM (no weights), STANDALONE (a draft model), EAGLE and EAGLE3 (a trained "
        "head) and NEXTN (a layer of the model's checkpoint) are");
  FOVEA_RETURN_IF_ERROR(refuse_of_others(flags, config.method));
  FOVEA_TRY(drafts, drafts_of(flags));
  config.num_tokens = drafts;
  config.prompt_lookup_min = flags.ngram_min_match_window_size.value_or(1);
  config.prompt_lookup_max = flags.ngram_max_match_window_size.value_or(kNgramWindow);
  config.model = flags.draft_model_path.value_or("");
  config.attention_backend = flags.draft_attention_backend.value_or("");
  if (flags.attention_mode && !same_name(*flags.attention_mode, "decode") &&
      !same_name(*flags.attention_mode, "prefill"))
    return invalid("--speculative-attention-mode is " + *flags.attention_mode +
                   "; allowed are decode and prefill");
  config.verify_in_prefill = flags.attention_mode && same_name(*flags.attention_mode, "prefill");
  if ((config.method == DraftMethod::draft_model || config.method == DraftMethod::eagle3) &&
      config.model.empty())
    return invalid("--speculative-algorithm " + algorithm + " needs --speculative-draft-model-path");
  if (config.method == DraftMethod::ngram && !config.model.empty())
    return invalid("--speculative-algorithm " + algorithm +
                   " drafts without a model; leave out --speculative-draft-model-path, or give STANDALONE");
  if (config.method == DraftMethod::mtp && !config.model.empty())
    return invalid("--speculative-algorithm " + algorithm +
                   " reads a layer of the model's own checkpoint; leave out --speculative-draft-model-path");
  FOVEA_RETURN_IF_ERROR(validate(config));
  return config;
}

}  // namespace fovea
