#include "load/draft_counts.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>

namespace fovea::load {
namespace {

constexpr std::string_view kPrefix = "vllm:spec_decode_num_";
constexpr size_t kMostPositions = 1024;

/// The value of label `position`; nullopt without.
std::optional<size_t> position_of(std::string_view labels) {
  constexpr std::string_view kLabel = "position=\"";
  const size_t at = labels.find(kLabel);
  if (at == std::string_view::npos) return std::nullopt;
  size_t position = 0;
  const char* const first = labels.data() + at + kLabel.size();
  if (std::from_chars(first, labels.data() + labels.size(), position).ec != std::errc()) return std::nullopt;
  return position < kMostPositions ? std::optional(position) : std::nullopt;
}

void take_line(std::string_view line, SpeculativeCounts& counts) {
  if (!line.starts_with(kPrefix)) return;
  line.remove_prefix(kPrefix.size());
  const size_t space = line.rfind(' ');
  if (space == std::string_view::npos) return;
  const double number = std::strtod(std::string(line.substr(space + 1)).c_str(), nullptr);
  if (!(number >= 0 && number < 0x1p53)) return;
  const auto value = static_cast<int64_t>(std::llround(number));
  const std::string_view name = line.substr(0, line.find_first_of("{ "));
  if (name == "drafts_total") counts.drafts += value;
  if (name == "draft_tokens_total") counts.draft_tokens += value;
  if (name == "accepted_tokens_total") counts.accepted_tokens += value;
  if (name != "accepted_tokens_per_pos_total") return;
  const auto position = position_of(line.substr(0, space));
  if (!position) return;
  if (counts.accepted_by_position.size() <= *position) counts.accepted_by_position.resize(*position + 1);
  counts.accepted_by_position[*position] += value;
}

}  // namespace

std::optional<SpeculativeCounts> parse_draft_counts(std::string_view metrics) {
  SpeculativeCounts counts;
  while (!metrics.empty()) {
    const size_t end = metrics.find('\n');
    take_line(metrics.substr(0, end), counts);
    metrics.remove_prefix(end == std::string_view::npos ? metrics.size() : end + 1);
  }
  return counts.drafts > 0 ? std::optional(counts) : std::nullopt;
}

SpeculativeCounts difference(const SpeculativeCounts& after, const SpeculativeCounts& before) {
  SpeculativeCounts out = after;
  out.drafts -= before.drafts;
  out.draft_tokens -= before.draft_tokens;
  out.accepted_tokens -= before.accepted_tokens;
  for (size_t i = 0; i < out.accepted_by_position.size() && i < before.accepted_by_position.size(); ++i)
    out.accepted_by_position[i] -= before.accepted_by_position[i];
  return out;
}

}  // namespace fovea::load
