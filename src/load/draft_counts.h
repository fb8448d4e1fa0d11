#pragma once
// What a server's /metrics report about drafts, with vLLM's names.
#include <optional>
#include <string_view>

#include "fovea/speculative.h"

namespace fovea::load {

/// From Prometheus text, summed over label sets; nullopt without drafts.
std::optional<SpeculativeCounts> parse_draft_counts(std::string_view metrics);

/// What was added between two readings.
SpeculativeCounts difference(const SpeculativeCounts& after, const SpeculativeCounts& before);

}  // namespace fovea::load
