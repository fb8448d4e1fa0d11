// Replace and Prepend.
#include <algorithm>

#include "fovea/result.h"
#include "text/normalizer.h"
#include "text/pattern.h"

namespace fovea::text {
namespace {

Result<std::string> inserted_text(const Json& spec, std::string_view path, std::string_view key) {
  FOVEA_TRY(text, string_field(spec, path, key, ""));
  if (text.size() > kMaxInsertedBytes) {
    return invalid(std::string(path) + "." + std::string(key) + " has " + std::to_string(text.size()) +
                   " bytes; at most " + std::to_string(kMaxInsertedBytes) + " are allowed");
  }
  return text;
}

class Replace final : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Result<std::string> apply(std::string text) const override {
    std::vector<Span> matches;
    FOVEA_RETURN_IF_ERROR(pattern_.find_all(text, matches));
    if (matches.empty()) return text;
    std::string out;
    out.reserve(text.size() + matches.size() * content_.size());
    size_t pos = 0;
    for (const Span& match : matches) {
      out.append(text, pos, match.begin - pos).append(content_);
      pos = match.end;
    }
    return out.append(text, pos);
  }
  size_t most_shrink() const override {
    if (!pattern_.literal() || content_.empty()) return 0;
    return std::max<size_t>((pattern_.literal()->size() + content_.size() - 1) / content_.size(), 1);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  Result<std::string> apply(std::string text) const override {
    if (!text.empty()) text.insert(0, prefix_);
    return text;
  }
  size_t most_shrink() const override { return 1; }

 private:
  std::string prefix_;
};

}  // namespace

Result<std::unique_ptr<Normalizer>> parse_replace_normalizer(const Json& spec) {
  FOVEA_TRY(pattern, Pattern::parse(spec.find("pattern"), "tokenizer.json: Replace.pattern"));
  FOVEA_TRY(content, inserted_text(spec, "tokenizer.json: Replace", "content"));
  return std::unique_ptr<Normalizer>(std::make_unique<Replace>(std::move(pattern), std::move(content)));
}

Result<std::unique_ptr<Normalizer>> parse_prepend(const Json& spec) {
  FOVEA_TRY(prefix, inserted_text(spec, "tokenizer.json: Prepend", "prepend"));
  return std::unique_ptr<Normalizer>(std::make_unique<Prepend>(std::move(prefix)));
}

}  // namespace fovea::text
