// Digits: cuts numeric characters off, one by one or in runs.
#include "text/pre_tokenizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

class Digits final : public PreTokenizer {
 public:
  explicit Digits(bool individual) : individual_(individual) {}

  Status apply(Pieces& pieces) const override {
    std::vector<Span> out;
    for (const Span& span : pieces.spans)
      cut(pieces.text, span, out);
    pieces.spans = std::move(out);
    return {};
  }

 private:
  void cut(std::string_view text, Span span, std::vector<Span>& out) const {
    bool previous_numeric = false;
    for (size_t pos = span.begin; pos < span.end;) {
      const Utf8Char c = decode_utf8(text.substr(pos, span.end - pos));
      const bool numeric = is_numeric(c.code_point);
      const bool starts = pos == span.begin || numeric != previous_numeric || (numeric && individual_);
      if (starts) {
        out.push_back({pos, pos + c.length});
      } else {
        out.back().end = pos + c.length;
      }
      previous_numeric = numeric;
      pos += c.length;
    }
  }

  bool individual_;
};

}  // namespace

Result<std::unique_ptr<PreTokenizer>> parse_digits(const Json& spec) {
  FOVEA_TRY(individual, bool_field(spec, "tokenizer.json: Digits", "individual_digits", false));
  return std::unique_ptr<PreTokenizer>(std::make_unique<Digits>(individual));
}

}  // namespace fovea::text
