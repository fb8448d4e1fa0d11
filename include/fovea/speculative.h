#pragma once
// Speculative decoding: a drafter proposes tokens, and one step of the model verifies several of them.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/dtype.h"
#include "fovea/result.h"

namespace fovea {

/// Where drafts come from.
enum class DraftMethod : uint8_t {
  none,
  ngram,        ///< what followed the last tokens earlier in the same prompt and answer
  suffix,       ///< likewise, by frequency, also in earlier answers
  draft_model,  ///< a smaller model with the same tokens
  eagle,        ///< a trained layer on the model's last hidden states (EAGLE-1 and 2)
  eagle3,       ///< likewise, on hidden states of several of its layers
  mtp,          ///< a layer that the model's own checkpoint has for it
};
/// vLLM's name: "ngram", "suffix", "draft_model", "eagle", "eagle3", "mtp"; "none".
std::string_view to_string(DraftMethod method);

/// Drafts of a step at most: a step computes one row more.
inline constexpr int kMaxDrafts = 15;

/// Answers do not depend on it, except with `synthetic_rates`.
struct SpeculativeConfig {
  DraftMethod method = DraftMethod::none;
  int num_tokens = 0;  ///< drafts of a step and sequence, 1 to kMaxDrafts

  /// ngram: the last n tokens are looked up, for the largest n between these for which they occurred before.
  int prompt_lookup_min = 5, prompt_lookup_max = 5;
  /// ngram on a GPU: the device looks them up, so that steps with drafts need not wait for the host; each of
  /// them has rows for all drafts, whether or not some are found.
  bool ngram_on_device = false;

  /// suffix: the most tokens of match and draft together.
  int suffix_max_tree_depth = 24;
  /// suffix: earlier answers of the same client that are searched too; 0 = only the request's own tokens. The
  /// time that an answer takes then depends on what the client asked before.
  int suffix_max_cached_requests = 0;
  double suffix_max_spec_factor = 1.0;  ///< suffix: drafts per token of the match, at most
  double suffix_min_token_prob = 0.1;   ///< suffix: a draft's frequency after the match, at least

  /// Verify with the backend that prefills: refused unless it has decode's bits, and then the same.
  bool verify_in_prefill = false;

  /// draft_model, eagle, eagle3: a directory in Hugging Face format, or a hub id found in the local cache.
  std::string model;
  std::optional<DType> model_dtype;  ///< nullopt = the checkpoint's; on a GPU always the model's
  std::string attention_backend;     ///< of the drafter; "" = chosen
  std::optional<int> max_model_len;  ///< drafts end at this length; nullopt = the drafter's context

  /// Drafts by the number of sequences that decode: with `from` to `to` of them, `num_tokens` (0 = none). A
  /// number that no entry has takes SpeculativeConfig::num_tokens.
  struct BatchRule {
    int from = 0, to = 0, num_tokens = 0;
    bool operator==(const BatchRule&) const = default;
  };
  std::vector<BatchRule> by_batch;
  /// Fewer drafts for a sequence whose drafts are rejected.
  bool adaptive = true;

  /// For load tests: the i-th draft is accepted with this probability, at random, whatever the model says;
  /// not ascending; empty = off. Answers are then no answers of the model.
  std::vector<double> synthetic_rates;

  bool enabled() const { return method != DraftMethod::none; }
  /// The drafter reads the model's hidden states.
  bool reads_hidden_states() const {
    return method == DraftMethod::eagle || method == DraftMethod::eagle3 || method == DraftMethod::mtp;
  }
  bool operator==(const SpeculativeConfig&) const = default;
};

/// Ok, or one line with the key that is wrong, what it may be, and the fix.
Status validate(const SpeculativeConfig& config);

/// Rates for a mean acceptance length (accepted drafts and the token that follows them) of `length`: each
/// draft is accepted with the same probability, if those before it are. Errors: not in [1, drafts + 1].
Result<std::vector<double>> synthetic_rates_of(double length, int drafts);

/// How drafts fared.
struct SpeculativeCounts {
  int64_t drafts = 0;           ///< steps of a sequence that verified drafts
  int64_t draft_tokens = 0;     ///< verified
  int64_t accepted_tokens = 0;  ///< of these
  std::vector<int64_t>
      accepted_by_position;  ///< drafts accepted at each place; as many as were ever verified

  /// Tokens of such a step: 1 + accepted / drafts; 0 without any.
  double mean_acceptance_length() const {
    return drafts > 0 ? 1 + static_cast<double>(accepted_tokens) / static_cast<double>(drafts) : 0;
  }
  void add(int verified, int accepted);
};

}  // namespace fovea
