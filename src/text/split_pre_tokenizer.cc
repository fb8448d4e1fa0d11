// Split: cuts at the matches of a pattern; `behavior` decides what happens to the matches.
#include "text/split_pre_tokenizer.h"

#include "fovea/result.h"
#include "text/pattern.h"
#include "text/pre_tokenizer.h"

namespace fovea::text {

Result<SplitBehavior> parse_split_behavior(const Json& spec, std::string_view path,
                                           std::optional<SplitBehavior> fallback) {
  FOVEA_TRY(name, string_field(spec, path, "behavior", ""));
  if (name.empty() && fallback) return *fallback;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  return invalid(std::string(path) + ".behavior is " + Json(name).describe() +
                 "; Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous are allowed");
}

// Whether a segment is glued to its left neighbour.
bool SegmentJoiner::glued(bool is_match) const {
  if (!previous_is_match_) return false;
  switch (behavior_) {
    case SplitBehavior::merged_with_previous: return is_match && !*previous_is_match_;
    case SplitBehavior::merged_with_next: return !is_match && *previous_is_match_;
    case SplitBehavior::contiguous: return is_match == *previous_is_match_;
    case SplitBehavior::removed:
    case SplitBehavior::isolated: return false;
  }
  return false;
}

void SegmentJoiner::add(Span segment, bool is_match) {
  if (segment.size() == 0) return;
  if (behavior_ != SplitBehavior::removed || !is_match) {
    if (glued(is_match)) {
      out_.back().end = segment.end;
    } else {
      out_.push_back(segment);
    }
  }
  previous_is_match_ = is_match;
}

namespace {

class Split final : public PreTokenizer {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  Status apply(Pieces& pieces) const override {
    std::vector<Span> out, matches;
    out.reserve(pieces.text.size() / 4 + 1);
    for (const Span& piece : pieces.spans) {
      matches.clear();
      const std::string_view text = std::string_view(pieces.text).substr(piece.begin, piece.size());
      FOVEA_RETURN_IF_ERROR(pattern_.find_all(text, matches));
      SegmentJoiner joiner(behavior_, out);
      size_t pos = piece.begin;
      for (const Span& match : matches) {
        joiner.add({pos, piece.begin + match.begin}, invert_);
        joiner.add({piece.begin + match.begin, piece.begin + match.end}, !invert_);
        pos = piece.begin + match.end;
      }
      joiner.add({pos, piece.end}, invert_);
    }
    pieces.spans = std::move(out);
    return {};
  }
  bool keeps_all() const override { return behavior_ != SplitBehavior::removed; }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

}  // namespace

Result<std::unique_ptr<PreTokenizer>> parse_split(const Json& spec) {
  constexpr std::string_view kPath = "tokenizer.json: Split";
  FOVEA_TRY(pattern, Pattern::parse(spec.find("pattern"), "tokenizer.json: Split.pattern"));
  FOVEA_TRY(behavior, parse_split_behavior(spec, kPath));
  FOVEA_TRY(invert, bool_field(spec, kPath, "invert", false));
  return std::unique_ptr<PreTokenizer>(std::make_unique<Split>(std::move(pattern), behavior, invert));
}

}  // namespace fovea::text
