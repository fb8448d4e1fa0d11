#include "text/pre_tokenizer.h"

#include <algorithm>

#include "fovea/result.h"

namespace fovea::text {
namespace {

class PreTokenizerSequence final : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> parts)
      : parts_(std::move(parts)) {}
  Status apply(Pieces& pieces) const override {
    for (const auto& part : parts_)
      FOVEA_RETURN_IF_ERROR(part->apply(pieces));
    return {};
  }
  int byte_level_stages() const override {
    int count = 0;
    for (const auto& part : parts_)
      count += part->byte_level_stages();
    return count;
  }
  bool keeps_all() const override {
    return std::ranges::all_of(parts_, [](const auto& part) { return part->keeps_all(); });
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

Result<std::unique_ptr<PreTokenizer>> parse_sequence(const Json& spec) {
  const Json* list = spec.find("pretokenizers");
  if (!list || !list->array()) return invalid("tokenizer.json: pre_tokenizer.pretokenizers must be a list");
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  for (const Json& item : *list->array()) {
    FOVEA_TRY(part, parse_pre_tokenizer(&item));
    if (part) parts.push_back(std::move(part));
  }
  return std::unique_ptr<PreTokenizer>(std::make_unique<PreTokenizerSequence>(std::move(parts)));
}

}  // namespace

Result<std::unique_ptr<PreTokenizer>> parse_pre_tokenizer(const Json* spec) {
  if (!spec || spec->is_null()) return std::unique_ptr<PreTokenizer>();
  FOVEA_TRY(type, string_field(*spec, "tokenizer.json: pre_tokenizer", "type", ""));
  if (type == "Split") return parse_split(*spec);
  if (type == "ByteLevel") return parse_byte_level(*spec);
  if (type == "Metaspace") return parse_metaspace(*spec);
  if (type == "Digits") return parse_digits(*spec);
  if (type == "Punctuation") return parse_punctuation(*spec);
  if (type == "CharDelimiterSplit") return parse_char_delimiter(*spec);
  if (type == "WhitespaceSplit") return make_whitespace_split();
  if (type == "Whitespace") return make_word_split();
  if (type == "BertPreTokenizer") return make_bert_split();
  if (type == "Sequence") return parse_sequence(*spec);
  return unsupported("tokenizer.json: pre_tokenizer " + Json(type).describe() +
                     " is not supported; supported: null, ByteLevel, Split, Metaspace, BertPreTokenizer, "
                     "Whitespace, WhitespaceSplit, Punctuation, Digits, CharDelimiterSplit, Sequence");
}

}  // namespace fovea::text
