// Normalizers with few or no settings: Unicode forms, Lowercase, Strip, StripAccents, Nmt, ByteLevel.
#include "fovea/result.h"
#include "text/byte_level.h"
#include "text/normalizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

// A normalizer that is a pure function of the text.
template <class Function>
class PlainNormalizer final : public Normalizer {
 public:
  PlainNormalizer(Function function, size_t most_shrink) : function_(function), most_shrink_(most_shrink) {}
  Result<std::string> apply(std::string text) const override { return function_(text); }
  size_t most_shrink() const override { return most_shrink_; }

 private:
  Function function_;
  size_t most_shrink_;
};

// For normalizers that drop nothing: the longest character has 4 bytes, the shortest 1, and no composition
// shrinks more (NFKC: U+03B9 as U+1D6C4 with U+0308 and U+0301, 8 bytes, becomes U+0390, 2 bytes; NFC: at
// most 3.5).
constexpr size_t kCharacterShrink = 4;

template <class Function>
std::unique_ptr<Normalizer> plain(Function function, size_t most_shrink = 0) {
  return std::make_unique<PlainNormalizer<Function>>(function, most_shrink);
}

std::unique_ptr<Normalizer> form(NormalForm wanted) {
  return plain([wanted](std::string_view text) { return to_normal_form(text, wanted); }, kCharacterShrink);
}

std::string without_marks(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = decode_utf8(text);
    if (!is_mark(c.code_point)) out += text.substr(0, c.length);
    text.remove_prefix(c.length);
  }
  return out;
}

// SentencePiece's cleaning for machine translation (nmt_nfkc without NFKC): control characters are removed,
// and characters that look like a blank become one.
bool nmt_drops(uint32_t c) {
  return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
         c == 0x9F;
}

bool nmt_blanks(uint32_t c) {
  return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
}

std::string nmt(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = decode_utf8(text);
    if (nmt_blanks(c.code_point)) {
      out += ' ';
    } else if (!nmt_drops(c.code_point)) {
      out += text.substr(0, c.length);
    }
    text.remove_prefix(c.length);
  }
  return out;
}

std::string strip(std::string_view text, bool left, bool right) {
  if (left) text.remove_prefix(leading_white_space(text));
  if (right) text.remove_suffix(trailing_white_space(text));
  return std::string(text);
}

}  // namespace

Result<std::unique_ptr<Normalizer>> parse_strip_normalizer(const Json& spec) {
  FOVEA_TRY(left, bool_field(spec, "tokenizer.json: Strip", "strip_left", true));
  FOVEA_TRY(right, bool_field(spec, "tokenizer.json: Strip", "strip_right", true));
  return plain([left, right](std::string_view text) { return strip(text, left, right); });
}

std::unique_ptr<Normalizer> make_plain_normalizer(std::string_view type) {
  if (type == "NFC") return form(NormalForm::nfc);
  if (type == "NFD") return form(NormalForm::nfd);
  if (type == "NFKC") return form(NormalForm::nfkc);
  if (type == "NFKD") return form(NormalForm::nfkd);
  if (type == "Lowercase") return plain(to_lower, kCharacterShrink);
  if (type == "StripAccents") return plain(without_marks);
  if (type == "Nmt") return plain(nmt);
  if (type == "ByteLevel") {
    return plain(
        [](std::string_view text) {
          std::string out;
          append_byte_level(text, out);
          return out;
        },
        1);
  }
  return nullptr;
}

}  // namespace fovea::text
