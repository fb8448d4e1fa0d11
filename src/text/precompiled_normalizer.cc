// Precompiled: SentencePiece's character map. base64 of: the trie's size in bytes (uint32, little endian),
// the trie as a darts-clone double array of uint32 units, and the replacements, each ended by a zero byte.
// The trie's values are offsets into the replacements.
#include <optional>
#include <vector>

#include "fovea/result.h"
#include "text/normalizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

// The longest real replacement is U+FDFA's, 33 bytes.
constexpr size_t kMaxReplacement = 256;

std::optional<std::string> decode_base64(std::string_view text) {
  while (text.ends_with('='))
    text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = static_cast<uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      value = static_cast<uint32_t>(c - 'a') + 26;
    } else if (c >= '0' && c <= '9') {
      value = static_cast<uint32_t>(c - '0') + 52;
    } else if (c == '+') {
      value = 62;
    } else if (c == '/') {
      value = 63;
    } else {
      return std::nullopt;
    }
    bits = bits << 6 | value;
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  if (count == 6) return std::nullopt;  // one lone digit
  return out;
}

uint32_t little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i)
    value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return value;
}

// A unit of a darts-clone double array.
struct Unit {
  uint32_t bits;
  bool has_leaf() const { return (bits >> 8 & 1) != 0; }
  size_t value() const { return bits & 0x7FFFFFFFu; }
  uint32_t label() const { return bits & 0x800000FFu; }
  size_t offset() const { return static_cast<size_t>(bits >> 10) << ((bits & 0x200u) >> 6); }
};

class CharsMap {
 public:
  static Result<CharsMap> parse(std::string_view blob) {
    const auto bad = [](const std::string& what) {
      return invalid("tokenizer.json: Precompiled.precompiled_charsmap " + what);
    };
    if (blob.size() < 4) return bad("is too short for its header");
    const size_t trie_bytes = little_endian(blob);
    if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > blob.size() - 4) {
      return bad("declares a trie of " + std::to_string(trie_bytes) +
                 " bytes; it must be a multiple of 4, above 0 and at most the " +
                 std::to_string(blob.size() - 4) + " bytes that follow");
    }
    CharsMap out;
    out.units_.reserve(trie_bytes / 4);
    for (size_t i = 0; i < trie_bytes; i += 4)
      out.units_.push_back({little_endian(blob.substr(4 + i))});
    out.replacements_ = blob.substr(4 + trie_bytes);
    if (!is_valid_utf8(out.replacements_)) return bad("has replacements that are not UTF-8");
    size_t run = 0;
    for (const char c : out.replacements_) {
      run = c == '\0' ? 0 : run + 1;
      if (run > kMaxReplacement) {
        return bad("has a replacement longer than " + std::to_string(kMaxReplacement) + " bytes");
      }
    }
    return out;
  }

  // The replacement of the shortest prefix of `text` that has one, as in the training of the models.
  std::optional<std::string_view> find(std::string_view text) const {
    size_t node = units_[0].offset();
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      if (byte == 0) break;
      node ^= byte;
      if (node >= units_.size() || units_[node].label() != byte) break;
      const bool has_leaf = units_[node].has_leaf();
      node ^= units_[node].offset();
      if (!has_leaf) continue;
      if (node >= units_.size()) break;
      return replacement_at(units_[node].value());
    }
    return std::nullopt;
  }

 private:
  std::optional<std::string_view> replacement_at(size_t offset) const {
    if (offset > replacements_.size()) return std::nullopt;
    std::string_view text = std::string_view(replacements_).substr(offset);
    text = text.substr(0, text.find('\0'));
    // The offset points into a character.
    if (!is_valid_utf8(text)) return std::nullopt;
    return text;
  }

  std::vector<Unit> units_;  // never empty
  std::string replacements_;
};

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(CharsMap map) : map_(std::move(map)) {}

  Result<std::string> apply(std::string text) const override {
    std::string out;
    out.reserve(text.size() + text.size() / 8);
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view cluster = rest.substr(0, first_grapheme(rest));
      append_cluster(cluster, out);
      rest.remove_prefix(cluster.size());
    }
    return out;
  }

 private:
  // A short cluster is looked up as a whole first, otherwise its characters one by one.
  void append_cluster(std::string_view cluster, std::string& out) const {
    constexpr size_t kLongestWhole = 5;
    if (cluster.size() <= kLongestWhole) {
      if (const auto replacement = map_.find(cluster)) {
        out += *replacement;
        return;
      }
    }
    while (!cluster.empty()) {
      const std::string_view character = cluster.substr(0, decode_utf8(cluster).length);
      out += map_.find(character).value_or(character);
      cluster.remove_prefix(character.size());
    }
  }

  CharsMap map_;
};

}  // namespace

Result<std::unique_ptr<Normalizer>> parse_precompiled(const Json& spec) {
  FOVEA_TRY(text, string_field(spec, "tokenizer.json: Precompiled", "precompiled_charsmap", ""));
  if (text.empty()) return std::unique_ptr<Normalizer>();  // SentencePiece's "identity"
  const auto blob = decode_base64(text);
  if (!blob) return invalid("tokenizer.json: Precompiled.precompiled_charsmap is not base64");
  FOVEA_TRY(map, CharsMap::parse(*blob));
  return std::unique_ptr<Normalizer>(std::make_unique<Precompiled>(std::move(map)));
}

}  // namespace fovea::text
