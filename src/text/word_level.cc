// WordLevel: a piece is a token or unknown.
#include "fovea/result.h"
#include "text/token_model.h"

namespace fovea::text {
namespace {

class WordLevel final : public TokenModel {
 public:
  WordLevel(Vocabulary vocabulary, int32_t unk_id) : TokenModel(std::move(vocabulary)), unk_id_(unk_id) {}
  void encode(std::string_view piece, std::vector<int32_t>& out) const override {
    if (!piece.empty()) out.push_back(vocabulary().find(piece).value_or(unk_id_));
  }

 private:
  int32_t unk_id_;
};

}  // namespace

Result<std::unique_ptr<TokenModel>> parse_word_level(const Json& spec) {
  FOVEA_TRY(vocabulary, parse_vocab_object(spec));
  FOVEA_TRY(unk, parse_unk_token(spec, vocabulary));
  if (!unk) return invalid("tokenizer.json: model.unk_token is missing; WordLevel needs one");
  return std::unique_ptr<TokenModel>(std::make_unique<WordLevel>(std::move(vocabulary), *unk));
}

}  // namespace fovea::text
