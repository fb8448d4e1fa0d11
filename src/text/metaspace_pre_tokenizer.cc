#include "fovea/result.h"
#include "text/metaspace.h"
#include "text/pre_tokenizer.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

class MetaspaceSplit final : public PreTokenizer {
 public:
  explicit MetaspaceSplit(Metaspace settings) : settings_(std::move(settings)) {}

  Status apply(Pieces& pieces) const override {
    Pieces out;
    out.at_start = pieces.first_is_at_start();
    out.text.reserve(pieces.text.size() + pieces.text.size() / 2 + settings_.replacement.size());
    for (size_t i = 0; i < pieces.spans.size(); ++i) {
      const Span& span = pieces.spans[i];
      spell(std::string_view(pieces.text).substr(span.begin, span.size()), i == 0 && out.at_start, out);
    }
    pieces = std::move(out);
    return {};
  }
  bool keeps_all() const override { return true; }

 private:
  void spell(std::string_view piece, bool at_start, Pieces& out) const {
    const std::string& mark = settings_.replacement;
    size_t begin = out.text.size();
    const bool wanted = settings_.prepend == Metaspace::Prepend::always ||
                        (settings_.prepend == Metaspace::Prepend::first && at_start);
    if (wanted && !piece.starts_with(' ') && !piece.starts_with(mark)) out.text += mark;
    for (size_t pos = 0; pos < piece.size();) {
      const bool is_blank = piece[pos] == ' ';
      const bool is_mark = is_blank || piece.substr(pos).starts_with(mark);
      if (is_mark && settings_.split && out.text.size() > begin && pos > 0) {
        out.spans.push_back({begin, out.text.size()});
        begin = out.text.size();
      }
      const size_t length = is_blank ? 1 : decode_utf8(piece.substr(pos)).length;
      out.text += is_mark ? std::string_view(mark) : piece.substr(pos, length);
      pos += length;
    }
    if (out.text.size() > begin) out.spans.push_back({begin, out.text.size()});
  }

  Metaspace settings_;
};

}  // namespace

Result<Metaspace> parse_metaspace_settings(const Json& spec) {
  constexpr std::string_view kPath = "tokenizer.json: Metaspace";
  Metaspace out;
  FOVEA_TRY(replacement, string_field(spec, kPath, "replacement", out.replacement));
  if (count_code_points(replacement) != 1) {
    return invalid("tokenizer.json: Metaspace.replacement is " + Json(replacement).describe() +
                   "; one character is needed");
  }
  out.replacement = std::move(replacement);
  FOVEA_TRY(scheme, string_field(spec, kPath, "prepend_scheme", ""));
  FOVEA_TRY(prefix, bool_field(spec, kPath, "add_prefix_space", true));
  if (scheme == "first") {
    out.prepend = Metaspace::Prepend::first;
  } else if (scheme == "never" || (scheme.empty() && !prefix)) {
    out.prepend = Metaspace::Prepend::never;
  } else if (!scheme.empty() && scheme != "always") {
    return invalid("tokenizer.json: Metaspace.prepend_scheme is " + Json(scheme).describe() +
                   "; always, first and never are allowed");
  }
  if (!prefix && out.prepend != Metaspace::Prepend::never) {
    return invalid("tokenizer.json: Metaspace.add_prefix_space is false, but prepend_scheme is " +
                   Json(scheme).describe() + "; drop one of them");
  }
  FOVEA_TRY(split, bool_field(spec, kPath, "split", true));
  out.split = split;
  return out;
}

Result<std::unique_ptr<PreTokenizer>> parse_metaspace(const Json& spec) {
  FOVEA_TRY(settings, parse_metaspace_settings(spec));
  return std::unique_ptr<PreTokenizer>(std::make_unique<MetaspaceSplit>(std::move(settings)));
}

}  // namespace fovea::text
