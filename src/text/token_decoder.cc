#include "text/token_decoder.h"

#include "text/byte_level.h"

namespace fovea::text {

Status check_decoder(const Json* spec) {
  constexpr const char* kSupported = "supported: ByteLevel, Sequence of one ByteLevel";
  if (!spec || spec->is_null()) {
    return unsupported(std::string("tokenizer.json: decoder null is not supported; ") + kSupported);
  }
  FOVEA_TRY(type, string_field(*spec, "tokenizer.json: decoder", "type", ""));
  if (type == "ByteLevel") return {};
  if (type != "Sequence") {
    return unsupported("tokenizer.json: decoder " + Json(type).describe() + " is not supported; " +
                       kSupported);
  }
  const Json* list = spec->find("decoders");
  if (!list || !list->array()) return invalid("tokenizer.json: decoder.decoders must be a list");
  if (list->array()->size() != 1) {
    return unsupported("tokenizer.json: decoder Sequence has " + std::to_string(list->array()->size()) +
                       " entries; " + kSupported);
  }
  return check_decoder(&list->array()->front());
}

std::string decode_byte_level(std::string_view token) {
  return spelled_bytes(token).value_or(std::string(token));
}

}  // namespace fovea::text
