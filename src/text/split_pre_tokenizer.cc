// Split: cuts at the matches of a pattern; `behavior` says what becomes of the matches.
#include <algorithm>

#include "text/pre_tokenizer.h"
#include "text/regex.h"

namespace fovea::text {
namespace {

enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct Segment {
  Span span;
  bool is_match;
};

// The segments of `piece` in order: matches and what lies between them.
std::vector<Segment> cut(Span piece, const std::vector<Span>& matches, bool invert) {
  std::vector<Segment> segments;
  size_t pos = piece.begin;
  for (const Span& match : matches) {
    if (pos < match.begin) segments.push_back({{pos, match.begin}, invert});
    if (match.size() > 0) segments.push_back({match, !invert});
    pos = match.end;
  }
  if (pos < piece.end) segments.push_back({{pos, piece.end}, invert});
  return segments;
}

// Whether `right` is glued to `left`, its neighbour.
bool glued(const Segment& left, const Segment& right, Behavior behavior) {
  switch (behavior) {
    case Behavior::merged_with_previous: return right.is_match && !left.is_match;
    case Behavior::merged_with_next: return left.is_match && !right.is_match;
    case Behavior::contiguous: return left.is_match == right.is_match;
    case Behavior::removed:
    case Behavior::isolated: return false;
  }
  return false;
}

class Split final : public PreTokenizer {
 public:
  Split(Regex regex, Behavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}

  Status apply(Pieces& pieces) const override {
    std::vector<Span> out, matches;
    out.reserve(pieces.text.size() / 4 + 1);
    for (const Span& piece : pieces.spans) {
      matches.clear();
      const std::string_view text = std::string_view(pieces.text).substr(piece.begin, piece.size());
      FOVEA_RETURN_IF_ERROR(regex_.find_all(text, matches));
      for (Span& match : matches)
        match = {match.begin + piece.begin, match.end + piece.begin};
      emit(cut(piece, matches, invert_), out);
    }
    pieces.spans = std::move(out);
    return {};
  }

 private:
  void emit(const std::vector<Segment>& segments, std::vector<Span>& out) const {
    for (size_t i = 0; i < segments.size(); ++i) {
      if (behavior_ == Behavior::removed && segments[i].is_match) continue;
      if (i > 0 && glued(segments[i - 1], segments[i], behavior_)) {
        out.back().end = segments[i].span.end;
      } else {
        out.push_back(segments[i].span);
      }
    }
  }

  Regex regex_;
  Behavior behavior_;
  bool invert_;
};

Result<Behavior> parse_behavior(const std::string& name) {
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  return invalid("tokenizer.json: Split.behavior is " + Json(name).describe() +
                 "; Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous are allowed");
}

std::string quote_regex(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    if (std::string_view("\\^$.[]|()?*+{}&-#").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<PreTokenizer>> parse_split(const Json& spec) {
  const Json* pattern = spec.find("pattern");
  const Json* regex_text = pattern ? pattern->find("Regex") : nullptr;
  const Json* literal = pattern ? pattern->find("String") : nullptr;
  std::string source;
  if (regex_text && regex_text->string()) {
    source = *regex_text->string();
  } else if (literal && literal->string()) {
    source = quote_regex(*literal->string());
  } else {
    return invalid("tokenizer.json: Split.pattern must be {\"Regex\": text} or {\"String\": text}");
  }
  FOVEA_TRY(behavior_name, string_field(spec, "tokenizer.json: Split", "behavior", ""));
  FOVEA_TRY(behavior, parse_behavior(behavior_name));
  FOVEA_TRY(invert, bool_field(spec, "tokenizer.json: Split", "invert", false));
  auto regex = Regex::compile(source);
  if (!regex) {
    return Error{regex.error().code,
                 "tokenizer.json: Split.pattern " + Json(source).describe() + ": " + regex.error().message};
  }
  return std::unique_ptr<PreTokenizer>(std::make_unique<Split>(*std::move(regex), behavior, invert));
}

}  // namespace fovea::text
