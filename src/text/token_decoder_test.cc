#include "text/token_decoder.h"
#include "fovea/result.h"

#include <gtest/gtest.h>

namespace fovea::text {
namespace {

using Tokens = std::vector<std::string>;

Result<TokenDecoder> parse(std::string_view json, bool clean_up = false) {
  auto spec = parse_json(json, "decoder");
  EXPECT_TRUE(spec) << json;
  return TokenDecoder::parse(&*spec, clean_up);
}

// What each token adds, each followed by "|"; then what the end adds.
std::string steps(std::string_view json, const Tokens& tokens, bool clean_up = false) {
  auto decoder = parse(json, clean_up);
  EXPECT_TRUE(decoder) << decoder.error().message;
  if (!decoder) return {};
  TokenDecoder::Run run(*decoder);
  std::string out;
  for (const std::string& token : tokens) {
    run.push(token, false, out);
    out += "|";
  }
  run.finish(out);
  return out;
}

std::string sequence(const std::string& stages) {
  return R"({"type":"Sequence","decoders":[)" + stages + "]}";
}

std::string error_of(std::string_view json) {
  auto decoder = parse(json);
  return decoder ? "no error" : decoder.error().message;
}

TEST(TokenDecoder, ByteLevel) {
  EXPECT_EQ(steps(R"({"type":"ByteLevel"})", {"\u0120a", "\u00c3", "\u00a9", "\u00c3"}),
            " a||\u00e9||\ufffd");
  EXPECT_EQ(steps(R"({"type":"ByteLevel"})", {"\u4e2d", "a b"}), "\u4e2d|a b|")
      << "not spelled in the alphabet";
}

TEST(TokenDecoder, Metaspace) {
  EXPECT_EQ(steps(R"({"type":"Metaspace"})", {"\u2581\u2581a", "\u2581b\u2581"}), "a| b |");
  EXPECT_EQ(steps(R"({"type":"Metaspace","prepend_scheme":"never"})", {"\u2581a"}), " a|");
  EXPECT_EQ(steps(R"({"type":"Metaspace","replacement":"_"})", {"_a", "_\u2581"}), "a| \u2581|");
}

TEST(TokenDecoder, WordPiece) {
  EXPECT_EQ(steps(R"({"type":"WordPiece"})", {"##a", "##b", "c", ".", "####"}), "##a|b| c|.|##|");
  EXPECT_EQ(steps(R"({"type":"WordPiece","prefix":"@","cleanup":false})", {"a", "@b", "."}), "a|b| .|");
  EXPECT_EQ(steps(R"({"type":"WordPiece","prefix":""})", {"a", "b"}), "a|b|") << "every token has it";
}

TEST(TokenDecoder, BpeSuffix) {
  EXPECT_EQ(steps(R"({"type":"BPEDecoder"})", {"a", "b</w>", "c</w>d</w>"}), "a|b| c|d");
}

TEST(TokenDecoder, ByteFallback) {
  EXPECT_EQ(steps(R"({"type":"ByteFallback"})", {"<0xE4>", "<0xB8>", "<0xAD>", "<0x41>"}), "||\u4e2d|A|");
  EXPECT_EQ(steps(R"({"type":"ByteFallback"})", {"<0xE4>", "<0xB8>", "a", "<0xFF>", "<0xC3>"}),
            "||\ufffd\ufffda|\ufffd||\ufffd");
  EXPECT_EQ(steps(R"({"type":"ByteFallback"})", {"<0xG1>", "<0x4>", "<0x041>"}), "<0xG1>|<0x4>|<0x041>|");
}

TEST(TokenDecoder, StripWorksOnPiecesOrOnTheWholeText) {
  constexpr const char* kStrip = R"({"type":"Strip","content":"_","start":1,"stop":1})";
  EXPECT_EQ(steps(kStrip, {"__a__", "_b"}), "_a_|b|");
  EXPECT_EQ(steps(sequence(R"({"type":"Fuse"},)" + std::string(kStrip)), {"__a_", "_", "_b__"}),
            "_a||___b|_");
}

TEST(TokenDecoder, ReplaceHoldsBackWhatCouldGoOn) {
  constexpr const char* kReplace = R"({"type":"Replace","pattern":{"String":"aab"},"content":"-"})";
  EXPECT_EQ(steps(kReplace, {"xaa", "b"}), "xaa|b|") << "each token by itself";
  EXPECT_EQ(steps(sequence(R"({"type":"Fuse"},)" + std::string(kReplace)), {"xaa", "a", "b", "a"}),
            "x|a|-||a");
}

TEST(TokenDecoder, NoDecoderPutsBlanksBetween) {
  EXPECT_EQ(steps("null", {"a", "", "b"}), "a| | b|");
}

TEST(TokenDecoder, CleanUp) {
  EXPECT_EQ(steps("null", {"it", "'", "s", ".", "x", "n't"}, true), "it||'s|.| x|n't|");
  EXPECT_EQ(steps("null", {"a", "'"}, true), "a|| '");
}

TEST(TokenDecoder, BytesInTheMiddleOfAText) {
  const auto bytes = [](std::string_view json, std::string_view token) {
    return parse(json)->token_bytes(token, false);
  };
  EXPECT_EQ(bytes(R"({"type":"ByteLevel"})", "\u00c3"), "\xC3");
  EXPECT_EQ(bytes(R"({"type":"Metaspace"})", "\u2581a"), " a");
  EXPECT_EQ(bytes(R"({"type":"WordPiece"})", "##a"), "a");
  EXPECT_EQ(bytes(R"({"type":"WordPiece"})", "a"), " a");
  EXPECT_EQ(bytes(R"({"type":"BPEDecoder"})", "a</w>"), "a ");
  EXPECT_EQ(bytes(R"({"type":"ByteFallback"})", "<0xE4>"), "\xE4");
  constexpr const char* kStrip = R"({"type":"Strip","content":" ","start":1,"stop":0})";
  EXPECT_EQ(bytes(kStrip, " a"), "a");
  EXPECT_EQ(bytes(sequence(R"({"type":"Fuse"},)" + std::string(kStrip)), " a"), " a");
  EXPECT_EQ(bytes("null", "a"), " a");
  EXPECT_EQ(parse(R"({"type":"ByteLevel"})")->token_bytes("caf\u00e9", true), "caf\u00e9");
}

TEST(TokenDecoder, LongOrMultiplyingChainsAreErrors) {
  const std::string doubling = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  std::string stages = doubling;
  for (int i = 1; i < 8; ++i)
    stages += "," + doubling;
  auto decoder = parse(sequence(stages));
  ASSERT_TRUE(decoder) << decoder.error().message;
  EXPECT_EQ(decoder->token_bytes("a", false).size(), 256u);
  EXPECT_NE(error_of(sequence(stages + "," + doubling)).find("up to 512 times longer"), std::string::npos);
  std::string many = R"({"type":"Fuse"})";
  for (int i = 1; i < 300'000; ++i)
    many += R"(,{"type":"Fuse"})";
  EXPECT_NE(error_of(sequence(many)).find("more than 64 stages"), std::string::npos);
}

TEST(TokenDecoder, BadSettingsAreErrors) {
  const auto expect = [](std::string_view json, std::string_view part) {
    const std::string message = error_of(json);
    EXPECT_NE(message.find(part), message.npos) << message;
  };
  expect(R"({"type":"CTC"})", "\"CTC\" is not supported");
  expect(sequence(R"({"type":"Fuse"},{"type":"WordPiece"})"), "WordPiece can't follow Fuse");
  expect(sequence(R"({"type":"Fuse"},{"type":"ByteLevel"})"), "must be the first");
  expect(R"({"type":"Strip","content":""})", "one character is needed");
  expect(R"({"type":"Strip","content":"a","start":-1})", "Strip.start is -1");
  expect(R"({"type":"Replace","pattern":{"Regex":"a"},"content":""})", "with a Regex is not supported");
  expect(R"({"type":"Replace","content":""})", "Replace.pattern must be");
  expect(R"({"type":"BPEDecoder","suffix":""})", "must not be empty");
  expect(R"({"type":"Sequence"})", "must be a list");
  expect("7", "decoder \"\" is not supported");
}

}  // namespace
}  // namespace fovea::text
