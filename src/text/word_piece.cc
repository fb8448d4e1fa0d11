#include "text/word_piece.h"

#include "fovea/result.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

// The tokens that start with `prefix`, stored without it.
ByteTrie trie_of(const Vocabulary& vocabulary, std::string_view prefix) {
  std::vector<std::pair<std::string_view, int32_t>> keys;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view token = vocabulary.token(id);
    if (vocabulary.has(id) && token.starts_with(prefix)) keys.emplace_back(token.substr(prefix.size()), id);
  }
  return ByteTrie(std::move(keys));
}

}  // namespace

WordPiece::WordPiece(Vocabulary vocabulary, const WordPieceOptions& options)
    : TokenModel(std::move(vocabulary)),
      unk_id_(options.unk_id),
      max_chars_(options.max_input_chars_per_word),
      starts_(trie_of(this->vocabulary(), "")),
      continuations_(trie_of(this->vocabulary(), options.continuing_subword_prefix)) {}

void WordPiece::encode(std::string_view piece, std::vector<int32_t>& out) const {
  if (count_code_points(piece) > max_chars_) {
    out.push_back(unk_id_);
    return;
  }
  const size_t before = out.size();
  const ByteTrie* trie = &starts_;
  while (!piece.empty()) {
    size_t longest = 0;
    int32_t best = -1;
    trie->for_each_prefix(piece, [&](size_t length, int32_t id) {
      longest = length;
      best = id;
    });
    if (best < 0) {
      out.resize(before);
      out.push_back(unk_id_);
      return;
    }
    out.push_back(best);
    piece.remove_prefix(longest);
    trie = &continuations_;
  }
}

Result<std::unique_ptr<TokenModel>> parse_word_piece(const Json& spec) {
  constexpr std::string_view kPath = "tokenizer.json: model";
  FOVEA_TRY(vocabulary, parse_vocab_object(spec));
  WordPieceOptions options;
  FOVEA_TRY(unk, parse_unk_token(spec, vocabulary));
  if (!unk) return invalid("tokenizer.json: model.unk_token is missing; WordPiece needs one");
  options.unk_id = *unk;
  FOVEA_TRY(prefix,
            string_field(spec, kPath, "continuing_subword_prefix", options.continuing_subword_prefix));
  options.continuing_subword_prefix = std::move(prefix);
  if (const Json* value = spec.find("max_input_chars_per_word"); value && !value->is_null()) {
    const int64_t* limit = value->integer();
    if (!limit || *limit < 0) {
      return invalid("tokenizer.json: model.max_input_chars_per_word is " + value->describe() +
                     "; a number of characters is needed");
    }
    options.max_input_chars_per_word = static_cast<size_t>(*limit);
  }
  return std::unique_ptr<TokenModel>(std::make_unique<WordPiece>(std::move(vocabulary), options));
}

}  // namespace fovea::text
