#include "text/normalizer.h"

#include <vector>

#include "text/unicode.h"

namespace fovea::text {
namespace {

class Nfc final : public Normalizer {
 public:
  std::string apply(std::string text) const override { return to_nfc(text); }
};

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  std::string apply(std::string text) const override {
    for (const auto& part : parts_)
      text = part->apply(std::move(text));
    return text;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

}  // namespace

Result<std::unique_ptr<Normalizer>> parse_normalizer(const Json* spec) {
  if (!spec || spec->is_null()) return std::unique_ptr<Normalizer>();
  FOVEA_TRY(type, string_field(*spec, "tokenizer.json: normalizer", "type", ""));
  if (type == "NFC") return std::unique_ptr<Normalizer>(std::make_unique<Nfc>());
  if (type != "Sequence") {
    return unsupported("tokenizer.json: normalizer " + Json(type).describe() +
                       " is not supported; supported: null, NFC, Sequence");
  }
  const Json* list = spec->find("normalizers");
  if (!list || !list->array()) return invalid("tokenizer.json: normalizer.normalizers must be a list");
  std::vector<std::unique_ptr<Normalizer>> parts;
  for (const Json& item : *list->array()) {
    FOVEA_TRY(part, parse_normalizer(&item));
    if (part) parts.push_back(std::move(part));
  }
  if (parts.empty()) return std::unique_ptr<Normalizer>();
  return std::unique_ptr<Normalizer>(std::make_unique<NormalizerSequence>(std::move(parts)));
}

}  // namespace fovea::text
