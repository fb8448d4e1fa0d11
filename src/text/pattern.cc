#include "text/pattern.h"

#include "fovea/result.h"

namespace fovea::text {

Result<Pattern> Pattern::parse(const Json* spec, std::string_view path) {
  Pattern out;
  const Json* regex = spec ? spec->find("Regex") : nullptr;
  const Json* literal = spec ? spec->find("String") : nullptr;
  if (regex && regex->string()) {
    auto compiled = Regex::compile(*regex->string());
    if (!compiled) {
      return Error{compiled.error().code,
                   std::string(path) + " " + regex->describe() + ": " + compiled.error().message};
    }
    out.regex_ = *std::move(compiled);
  } else if (literal && literal->string()) {
    out.literal_ = *literal->string();
  } else {
    return invalid(std::string(path) + " must be {\"Regex\": text} or {\"String\": text}");
  }
  return out;
}

Status Pattern::find_all(std::string_view text, std::vector<Span>& matches) const {
  if (regex_) return regex_->find_all(text, matches);
  if (literal_.empty()) return {};
  for (size_t at = text.find(literal_); at != text.npos; at = text.find(literal_, at + literal_.size()))
    matches.push_back({at, at + literal_.size()});
  return {};
}

}  // namespace fovea::text
