#pragma once
// Speculative decoding as other engines' flags ask for it.
#include <optional>
#include <string>
#include <string_view>

#include "fovea/speculative.h"

namespace fovea {

/// vLLM's --speculative-config: a JSON object. All its keys are known; a key that would change answers, or
/// that needs what is not built, is refused with the reason. Errors begin with the flag.
Result<SpeculativeConfig> speculative_from_json(std::string_view json);

/// SGLang's flags, --speculative-...; nullopt = not given.
struct SglangSpeculative {
  std::optional<std::string> algorithm, draft_model_path, attention_mode, draft_attention_backend;
  std::optional<int> num_steps, eagle_topk, num_draft_tokens;
  std::optional<int> ngram_min_match_window_size, ngram_max_match_window_size;
  std::optional<double> accept_threshold_single, accept_threshold_acc;
  bool operator==(const SglangSpeculative&) const = default;
  bool given() const { return *this != SglangSpeculative(); }
};

/// Likewise.
Result<SpeculativeConfig> speculative_from_sglang(const SglangSpeculative& flags);

/// Why drafts are chains here.
inline constexpr char kNoTrees[] =
    "drafts are one chain. A node of a tree must read its ancestors where the text without drafts has them, "
    "or its bits differ, so each path reads the keys of the text, and computes the nodes that it shares, by "
    "itself: a tree of 16 nodes in 8 paths has about 30 rows, and costs more than it gains over a chain";

}  // namespace fovea
