#include "text/normalizer.h"

#include <algorithm>
#include <vector>

#include "fovea/result.h"

namespace fovea::text {
namespace {

// The largest growth in practice is a compatibility decomposition: U+FDFA, 3 bytes, becomes 33. A chain of
// stages that each double the text would exhaust memory.
constexpr size_t kMaxGrowth = 64;
constexpr size_t kFreeBytes = size_t{64} << 10;
// Larger factors give no useful bound.
constexpr size_t kMaxShrink = size_t{1} << 20;

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  Result<std::string> apply(std::string text) const override {
    const size_t limit = text.size() * kMaxGrowth + kFreeBytes;
    for (const auto& part : parts_) {
      FOVEA_TRY(next, part->apply(std::move(text)));
      if (next.size() > limit) {
        return invalid("tokenizer.json: the normalizer makes a text more than " + std::to_string(kMaxGrowth) +
                       " times longer; its stages multiply each other");
      }
      text = std::move(next);
    }
    return text;
  }
  size_t most_shrink() const override {
    size_t shrink = 1;
    for (const auto& part : parts_) {
      const size_t of_part = part->most_shrink();
      if (of_part > kMaxShrink / shrink) return 0;
      shrink *= of_part;
      if (shrink == 0) break;
    }
    return shrink;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

Result<std::unique_ptr<Normalizer>> parse_sequence(const Json& spec) {
  const Json* list = spec.find("normalizers");
  if (!list || !list->array()) return invalid("tokenizer.json: normalizer.normalizers must be a list");
  std::vector<std::unique_ptr<Normalizer>> parts;
  for (const Json& item : *list->array()) {
    FOVEA_TRY(part, parse_normalizer(&item));
    if (part) parts.push_back(std::move(part));
  }
  if (parts.empty()) return std::unique_ptr<Normalizer>();
  return std::unique_ptr<Normalizer>(std::make_unique<NormalizerSequence>(std::move(parts)));
}

}  // namespace

Result<std::unique_ptr<Normalizer>> parse_normalizer(const Json* spec) {
  if (!spec || spec->is_null()) return std::unique_ptr<Normalizer>();
  FOVEA_TRY(type, string_field(*spec, "tokenizer.json: normalizer", "type", ""));
  if (type == "Sequence") return parse_sequence(*spec);
  if (type == "Replace") return parse_replace_normalizer(*spec);
  if (type == "Prepend") return parse_prepend(*spec);
  if (type == "Strip") return parse_strip_normalizer(*spec);
  if (type == "BertNormalizer") return parse_bert_normalizer(*spec);
  if (type == "Precompiled") return parse_precompiled(*spec);
  if (auto plain = make_plain_normalizer(type)) return plain;
  return unsupported(
      "tokenizer.json: normalizer " + Json(type).describe() +
      " is not supported; supported: null, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, "
      "Replace, Prepend, BertNormalizer, Precompiled, Nmt, ByteLevel, Sequence");
}

}  // namespace fovea::text
