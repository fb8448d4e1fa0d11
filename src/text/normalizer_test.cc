#include "text/normalizer.h"

#include <gtest/gtest.h>

#include "fovea/result.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

Result<std::unique_ptr<Normalizer>> parse(std::string_view json) {
  auto spec = parse_json(json, "normalizer");
  EXPECT_TRUE(spec) << json;
  return parse_normalizer(&*spec);
}

std::string normalized(std::string_view json, std::string_view text) {
  auto stage = parse(json);
  EXPECT_TRUE(stage) << stage.error().message;
  if (!stage || !*stage) return std::string(text);
  auto out = (*stage)->apply(std::string(text));
  return out ? *out : "error: " + out.error().message;
}

std::string error_of(std::string_view json) {
  auto stage = parse(json);
  return stage ? "no error" : stage.error().message;
}

TEST(Normalizer, SimpleOnes) {
  EXPECT_EQ(normalized(R"({"type":"NFKD"})", "\ufb01\u00e9"), "fie\u0301");
  EXPECT_EQ(normalized(R"({"type":"Lowercase"})", "\u00c9T\u0130"), "\u00e9ti\u0307");
  EXPECT_EQ(normalized(R"({"type":"StripAccents"})", "e\u0301\u0903\u00e9"), "e\u00e9");
  EXPECT_EQ(normalized(R"({"type":"Strip","strip_left":true,"strip_right":false})", "\u3000 a "), "a ");
  EXPECT_EQ(normalized(R"({"type":"Strip"})", " \t "), "");
  EXPECT_EQ(normalized(R"({"type":"Nmt"})", "a\u0001\u200b\u2581\tb\u00ad"), "a   b\u00ad");
  EXPECT_EQ(normalized(R"({"type":"ByteLevel"})", " \u00e9"), "\u0120\u00c3\u00a9");
  EXPECT_EQ(normalized(R"({"type":"Prepend","prepend":"_"})", "a"), "_a");
  EXPECT_EQ(normalized(R"({"type":"Prepend","prepend":"_"})", ""), "");
  EXPECT_EQ(normalized("null", "a"), "a");
  EXPECT_EQ(
      normalized(R"({"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"StripAccents"}]})", "\u00e9"),
      "e");
}

TEST(Normalizer, Replace) {
  EXPECT_EQ(normalized(R"({"type":"Replace","pattern":{"String":"."},"content":"--"})", "a.b."), "a--b--");
  EXPECT_EQ(normalized(R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "})", "a   b c"),
            "a b c");
  EXPECT_EQ(normalized(R"({"type":"Replace","pattern":{"String":""},"content":"x"})", "ab"), "ab");
  EXPECT_EQ(normalized(R"({"type":"Replace","pattern":{"String":"aa"},"content":"a"})", "aaa"), "aa");
}

TEST(Normalizer, Bert) {
  constexpr const char* kAll = R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,
      "strip_accents":null,"lowercase":true})";
  EXPECT_EQ(normalized(kAll, "\u00c9a\u4e2d\u6587b\u0001\ufffd\u00ad\t\u3000x"), "ea \u4e2d  \u6587 b  x");
  EXPECT_EQ(normalized(kAll, "\U0002B820\U0002B920"), "\U0002B820 \U0002B920 ")
      << "the table that models were trained with";
  constexpr const char* kNone = R"({"type":"BertNormalizer","clean_text":false,"handle_chinese_chars":false,
      "strip_accents":null,"lowercase":false})";
  EXPECT_EQ(normalized(kNone, "\u00c9\u4e2d\t\u00ad"), "\u00c9\u4e2d\t\u00ad")
      << "null: accents go with the case";
  EXPECT_EQ(normalized(R"({"type":"BertNormalizer","lowercase":true,"strip_accents":false})", "\u00c9"),
            "\u00e9");
  EXPECT_EQ(normalized(R"({"type":"BertNormalizer","lowercase":false,"strip_accents":true})", "\u00c9"), "E");
}

TEST(Normalizer, GrowthIsBounded) {
  std::string stages;
  for (int i = 0; i < 40; ++i)
    stages += std::string(i ? "," : "") + R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  const std::string out =
      normalized(R"({"type":"Sequence","normalizers":[)" + stages + "]}", std::string(1000, 'a'));
  EXPECT_NE(out.find("error: tokenizer.json: the normalizer makes a text more than 64 times longer"),
            out.npos);
  EXPECT_NE(
      error_of(R"({"type":"Replace","pattern":{"String":"a"},"content":")" + std::string(300, 'x') + "\"}")
          .find("300 bytes; at most 256"),
      std::string::npos);
  EXPECT_NE(error_of(R"({"type":"Prepend","prepend":")" + std::string(300, 'x') + "\"}").find("at most 256"),
            std::string::npos);
}

TEST(Normalizer, BadSettingsAreErrors) {
  EXPECT_NE(error_of(R"({"type":"Other"})").find("\"Other\" is not supported"), std::string::npos);
  EXPECT_NE(error_of(R"({"type":"Sequence"})").find("must be a list"), std::string::npos);
  EXPECT_NE(error_of(R"({"type":"Replace"})").find("Replace.pattern must be"), std::string::npos);
  EXPECT_NE(error_of(R"({"type":"Replace","pattern":{"Regex":"("}})").find("does not compile"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"type":"BertNormalizer","lowercase":3})").find("lowercase is 3"), std::string::npos);
}

// A character map made by hand. Children of a node with base B lie at B ^ label; a unit is
// offset << 10 | has_leaf << 8 | label, where the offset is its position ^ its base.
struct Map {
  std::vector<uint32_t> units = std::vector<uint32_t>(0x800);
  std::string replacements;

  // A key of one or two bytes; `base` and `deeper` must be free.
  void add(std::string_view key, std::string_view value, uint32_t base, uint32_t deeper = 0) {
    constexpr uint32_t kRoot = 0x100;
    units[0] = kRoot << 10;
    const auto first = static_cast<uint8_t>(key[0]);
    leaf(kRoot ^ first, first, base, key.size() == 1);
    if (key.size() == 2)
      leaf(base ^ static_cast<uint8_t>(key[1]), static_cast<uint8_t>(key[1]), deeper, true);
    units[key.size() == 1 ? base : deeper] = 1u << 31 | static_cast<uint32_t>(replacements.size());
    replacements.append(value).push_back('\0');
  }
  void leaf(uint32_t at, uint8_t label, uint32_t base, bool has_leaf) {
    units[at] = (at ^ base) << 10 | (has_leaf ? 0x100u : 0u) | (units[at] & 0x100u) | label;
  }
  std::string blob() const {
    std::string out;
    const auto put = [&](uint32_t value) {
      for (int i = 0; i < 4; ++i)
        out.push_back(static_cast<char>(value >> (8 * i)));
    };
    put(static_cast<uint32_t>(units.size() * 4));
    for (const uint32_t unit : units)
      put(unit);
    return out + replacements;
  }
};

std::string base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j)
      out += i + j <= bytes.size() ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

std::string precompiled(std::string_view blob) {
  return R"({"type":"Precompiled","precompiled_charsmap":")" + base64(blob) + "\"}";
}

TEST(Precompiled, ReplacesCharactersAndClusters) {
  Map map;
  map.add("\xC2\xB2", "2", 0x200, 0x300);  // superscript two
  map.add("x", "ks", 0x400);
  map.add("\r", " ", 0x500);
  const std::string json = precompiled(map.blob());
  EXPECT_EQ(normalized(json, "ax\u00b2\u00b3"), "aks2\u00b3");
  EXPECT_EQ(normalized(json, "a\r\nb\n"), "a b\n") << "a short cluster is replaced whole by its first match";
  EXPECT_EQ(normalized(json, "x\u0301"), "ks") << "and so is a letter with its mark";
  EXPECT_EQ(normalized(json, "x\u0301\u0301\u0301"), "ks\u0301\u0301\u0301")
      << "a cluster of 6 bytes goes by characters";
  EXPECT_EQ(normalized(json, std::string("\0x", 2)), std::string("\0ks", 3));
  EXPECT_EQ(normalized(R"({"type":"Precompiled","precompiled_charsmap":""})", "x"), "x");
}

TEST(Precompiled, HostileMapsAreRefusedOrHarmless) {
  const auto expect = [](std::string_view blob, std::string_view part) {
    const std::string message = error_of(precompiled(blob));
    EXPECT_NE(message.find(part), message.npos) << message;
  };
  expect("ab", "too short");
  expect(std::string("\xFF\xFF\xFF\xFF", 4),
         "declares a trie of 4294967295 bytes; it must be a multiple of 4, above 0 and at most the 0 bytes");
  expect(std::string("\0\0\0\0abcd", 8), "declares a trie of 0 bytes");
  expect(std::string("\x03\0\0\0abcd", 8), "declares a trie of 3 bytes");
  expect(std::string("\x04\0\0\0\0\0\0\0\xFF", 9), "not UTF-8");
  expect(std::string("\x04\0\0\0\0\0\0\0", 8) + std::string(300, 'x'), "longer than 256");
  EXPECT_NE(error_of(R"({"type":"Precompiled","precompiled_charsmap":"!"})").find("not base64"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"type":"Precompiled","precompiled_charsmap":"A"})").find("not base64"),
            std::string::npos);
  // Offsets and values beyond the ends, and into the middle of a character.
  for (const uint32_t root : {0x100u << 10, 0x3FFFFFu << 10, 0x3FFFFFu << 10 | 0x200u}) {
    for (const uint32_t unit :
         {'x' | 0x100u, 'x' | 0x100u | 0x1FFFFFu << 10, 'x' | 0x300u | 0x1FFFFFu << 10}) {
      for (const uint32_t value : {0u, 1u, 2u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
        Map map;
        std::fill(map.units.begin(), map.units.end(), value);
        map.units[0] = root;
        map.units[0x100 ^ 'x'] = unit;
        map.replacements = "\u00e9";
        EXPECT_TRUE(is_valid_utf8(normalized(precompiled(map.blob()), "xyz\u00e9\u4e2d")));
      }
    }
  }
}

}  // namespace
}  // namespace fovea::text
