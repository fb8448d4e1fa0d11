#pragma once
// How a pre-tokenizer treats the matches that it cuts at.
#include <optional>
#include <string>
#include <vector>

#include "fovea/result_fwd.h"
#include "text/json_value.h"
#include "text/span.h"

namespace fovea::text {

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// `spec`.behavior; `path` names it in errors. Without a fallback it is required.
Result<SplitBehavior> parse_split_behavior(const Json& spec, std::string_view path,
                                           std::optional<SplitBehavior> fallback = {});

/// Turns the segments of one piece, given in order, into pieces.
class SegmentJoiner {
 public:
  SegmentJoiner(SplitBehavior behavior, std::vector<Span>& out) : behavior_(behavior), out_(out) {}
  /// Empty segments are skipped.
  void add(Span segment, bool is_match);

 private:
  bool glued(bool is_match) const;

  SplitBehavior behavior_;
  std::vector<Span>& out_;
  std::optional<bool> previous_is_match_;
};

}  // namespace fovea::text
