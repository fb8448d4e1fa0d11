// BertNormalizer: drops control characters, sets Chinese characters apart, strips accents, lower-cases.
#include <optional>

#include "fovea/result.h"
#include "text/normalizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

struct BertOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};

// The ideographs as BERT's tokenizers list them. The extension E block starts at U+2B820, but they all list
// 2B920, and models were trained that way.
bool is_chinese(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_dropped(uint32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  return c == 0 || c == kReplacement || is_control_or_format(c);
}

std::string without_accents(std::string_view text) {
  const std::string decomposed = to_normal_form(text, NormalForm::nfd);
  std::string out;
  out.reserve(decomposed.size());
  for (std::string_view rest = decomposed; !rest.empty();) {
    const Utf8Char c = decode_utf8(rest);
    if (!is_nonspacing_mark(c.code_point)) out += rest.substr(0, c.length);
    rest.remove_prefix(c.length);
  }
  return out;
}

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(const BertOptions& options) : options_(options) {}

  Result<std::string> apply(std::string text) const override {
    std::string out;
    out.reserve(text.size() + text.size() / 4);
    for (std::string_view rest = text; !rest.empty();) {
      const Utf8Char c = decode_utf8(rest);
      append(rest.substr(0, c.length), c.code_point, out);
      rest.remove_prefix(c.length);
    }
    if (options_.strip_accents) out = without_accents(out);
    if (options_.lowercase) out = to_lower(out);
    return out;
  }

 private:
  void append(std::string_view character, uint32_t c, std::string& out) const {
    if (options_.clean_text && is_dropped(c)) return;
    if (options_.clean_text && is_white_space(c)) {
      out += ' ';
    } else if (options_.handle_chinese_chars && is_chinese(c)) {
      out.append(1, ' ').append(character).append(1, ' ');
    } else {
      out += character;
    }
  }

  BertOptions options_;
};

}  // namespace

Result<std::unique_ptr<Normalizer>> parse_bert_normalizer(const Json& spec) {
  constexpr std::string_view kPath = "tokenizer.json: BertNormalizer";
  BertOptions options;
  FOVEA_TRY(clean_text, bool_field(spec, kPath, "clean_text", true));
  FOVEA_TRY(handle_chinese_chars, bool_field(spec, kPath, "handle_chinese_chars", true));
  FOVEA_TRY(lowercase, bool_field(spec, kPath, "lowercase", true));
  // null: same as `lowercase`.
  FOVEA_TRY(strip_accents, bool_field(spec, kPath, "strip_accents", lowercase));
  options = {clean_text, handle_chinese_chars, strip_accents, lowercase};
  return std::unique_ptr<Normalizer>(std::make_unique<BertNormalizer>(options));
}

}  // namespace fovea::text
