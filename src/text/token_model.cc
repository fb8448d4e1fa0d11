#include "text/token_model.h"

#include "fovea/result.h"

namespace fovea::text {
namespace {

// Files of the first versions have no type; it is inferred from their contents.
std::string_view guessed_type(const Json& spec) {
  if (spec.find("merges")) return "BPE";
  const Json* vocab = spec.find("vocab");
  if (vocab && vocab->array()) return "Unigram";
  return spec.find("continuing_subword_prefix") ? "WordPiece" : "";
}

}  // namespace

Result<std::unique_ptr<TokenModel>> parse_token_model(const Json* spec) {
  if (!spec || !spec->object()) return invalid("tokenizer.json: model must be an object");
  FOVEA_TRY(type, string_field(*spec, "tokenizer.json: model", "type", guessed_type(*spec)));
  if (type == "BPE") return parse_bpe(*spec);
  if (type == "Unigram") return parse_unigram(*spec);
  if (type == "WordPiece") return parse_word_piece(*spec);
  if (type == "WordLevel") return parse_word_level(*spec);
  return unsupported("tokenizer.json: model.type " + Json(type).describe() +
                     " is not supported; supported: BPE, Unigram, WordPiece, WordLevel");
}

Result<Vocabulary> parse_vocab_object(const Json& spec) {
  const Json* vocab = spec.find("vocab");
  if (!vocab) return invalid("tokenizer.json: model.vocab is missing");
  return Vocabulary::parse(*vocab, "tokenizer.json: model.vocab");
}

Result<std::optional<int32_t>> parse_unk_token(const Json& spec, const Vocabulary& vocabulary) {
  FOVEA_TRY(unk, string_field(spec, "tokenizer.json: model", "unk_token", ""));
  if (unk.empty()) return std::optional<int32_t>();
  const auto id = vocabulary.find(unk);
  if (!id) {
    return invalid("tokenizer.json: model.unk_token is " + Json(unk).describe() +
                   ", which model.vocab does not have");
  }
  return id;
}

}  // namespace fovea::text
