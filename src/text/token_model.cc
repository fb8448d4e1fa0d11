#include "text/token_model.h"

namespace fovea::text {

Result<std::unique_ptr<TokenModel>> parse_token_model(const Json* spec) {
  if (!spec || !spec->object()) return invalid("tokenizer.json: model must be an object");
  // Files of the first versions have no type; those with merges are BPE.
  FOVEA_TRY(type, string_field(*spec, "tokenizer.json: model", "type", spec->find("merges") ? "BPE" : ""));
  if (type == "BPE") return parse_bpe(*spec);
  return unsupported("tokenizer.json: model.type " + Json(type).describe() +
                     " is not supported; supported: BPE");
}

}  // namespace fovea::text
