// ByteLevel: optionally cuts with GPT-2's pattern, then spells every byte in the byte-level alphabet.
#include "fovea/result.h"
#include "text/byte_level.h"
#include "text/pre_tokenizer.h"
#include "text/regex.h"

namespace fovea::text {
namespace {

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, std::unique_ptr<Regex> regex)
      : add_prefix_space_(add_prefix_space), regex_(std::move(regex)) {}

  int byte_level_stages() const override { return 1; }
  bool keeps_all() const override { return true; }

  Status apply(Pieces& pieces) const override {
    Pieces out;
    out.at_start = pieces.first_is_at_start();
    out.text.reserve(pieces.text.size() + pieces.text.size() / 2);
    out.spans.reserve(pieces.spans.size());
    std::vector<Span> matches;
    std::string prefixed;
    for (const Span& span : pieces.spans) {
      std::string_view piece = std::string_view(pieces.text).substr(span.begin, span.size());
      if (add_prefix_space_ && !piece.starts_with(' ')) {
        prefixed.assign(1, ' ').append(piece);
        piece = prefixed;
      }
      if (!regex_) {
        spell(piece, out);
        continue;
      }
      matches.clear();
      FOVEA_RETURN_IF_ERROR(regex_->find_all(piece, matches));
      // Every character starts a match of one of the alternatives, so the matches cover the piece.
      for (const Span& match : matches)
        spell(piece.substr(match.begin, match.size()), out);
    }
    pieces = std::move(out);
    return {};
  }

 private:
  static void spell(std::string_view piece, Pieces& out) {
    const size_t begin = out.text.size();
    append_byte_level(piece, out.text);
    out.spans.push_back({begin, out.text.size()});
  }

  bool add_prefix_space_;
  std::unique_ptr<Regex> regex_;  // null: no cutting
};

}  // namespace

Result<std::unique_ptr<PreTokenizer>> parse_byte_level(const Json& spec) {
  constexpr std::string_view kPath = "tokenizer.json: ByteLevel";
  FOVEA_TRY(add_prefix_space, bool_field(spec, kPath, "add_prefix_space", true));
  FOVEA_TRY(use_regex, bool_field(spec, kPath, "use_regex", true));
  FOVEA_RETURN_IF_ERROR(bool_field(spec, kPath, "trim_offsets", true));  // offsets only: no effect on ids
  std::unique_ptr<Regex> regex;
  if (use_regex) {
    FOVEA_TRY(compiled, Regex::compile(kGpt2Pattern));
    regex = std::make_unique<Regex>(std::move(compiled));
  }
  return std::unique_ptr<PreTokenizer>(std::make_unique<ByteLevel>(add_prefix_space, std::move(regex)));
}

}  // namespace fovea::text
