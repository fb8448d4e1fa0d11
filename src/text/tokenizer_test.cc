#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <utility>

#include <filesystem>
#include <fstream>
#include <random>

#include "fovea/result.h"
#include "text/byte_level.h"
#include "text/post_processor.h"
#include "text/utf8.h"

namespace fovea {
namespace {

std::string folder(const std::string& name) {
  return std::string(FOVEA_SOURCE_DIR) + "/tests/text/tokenizers/" + name;
}

std::unique_ptr<Tokenizer> load(const std::string& name) {
  auto tokenizer = Tokenizer::load(folder(name));
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return tokenizer ? *std::move(tokenizer) : nullptr;
}

// Parts of a small tokenizer.json: the 256 bytes, no merges.
struct Parts {
  std::string added = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";
  std::string post_processor = "null";
  std::string decoder = R"({"type":"ByteLevel"})";
  std::string model_type = "BPE";

  std::string json() const {
    std::string vocab;
    for (int byte = 0; byte < 256; ++byte) {
      const std::string_view spelling = text::byte_to_char(static_cast<uint8_t>(byte));
      vocab += byte ? "," : "";
      vocab += spelling == "\"" || spelling == "\\" ? "\"\\" : "\"";
      vocab += std::string(spelling) + "\":" + std::to_string(byte);
    }
    return R"({"added_tokens":)" + added + R"(,"normalizer":)" + normalizer + R"(,"pre_tokenizer":)" +
           pre_tokenizer + R"(,"post_processor":)" + post_processor + R"(,"decoder":)" + decoder +
           R"(,"model":{"type":")" + model_type + R"(","vocab":{)" + vocab + R"(},"merges":[]}})";
  }
};

std::unique_ptr<Tokenizer> parse(const Parts& parts, const std::string& config = "") {
  auto tokenizer = Tokenizer::parse(parts.json(), config);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return tokenizer ? *std::move(tokenizer) : nullptr;
}

std::string error_of(const Parts& parts, const std::string& config = "") {
  auto tokenizer = Tokenizer::parse(parts.json(), config);
  return tokenizer ? "no error" : tokenizer.error().message;
}

using Ids = std::vector<int32_t>;

Ids encode(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options = {}) {
  auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids);
  return ids ? *std::move(ids) : Ids{};
}

TEST(Tokenizer, RoundTripsText) {
  for (const char* name : {"llama3", "qwen"}) {
    auto tokenizer = load(name);
    for (const std::string text :
         {"Hello, world!", "  a\r\n\tb  ", "中文 🙂 é", "", "<|im_end|> <|eot_id|>"}) {
      EXPECT_EQ(tokenizer->decode(encode(*tokenizer, text, {.add_special_tokens = false}), false), text);
    }
  }
}

TEST(Tokenizer, EveryByteHasAToken) {
  auto tokenizer = load("llama3");
  for (int byte = 0; byte < 256; ++byte) {
    const auto id = tokenizer->token_to_id(text::byte_to_char(static_cast<uint8_t>(byte)));
    ASSERT_TRUE(id);
    EXPECT_EQ(tokenizer->token_bytes(*id), std::string(1, static_cast<char>(byte)));
  }
}

TEST(Tokenizer, PostProcessorAddsBosOnlyWhenAsked) {
  auto tokenizer = load("llama3");
  const int32_t bos = tokenizer->bos_token_id().value();
  EXPECT_EQ(encode(*tokenizer, "").front(), bos);
  EXPECT_TRUE(encode(*tokenizer, "", {.add_special_tokens = false}).empty());
  EXPECT_EQ(tokenizer->special_token("bos_token"), "<|begin_of_text|>");
  EXPECT_EQ(tokenizer->special_token("nothing"), "");
  EXPECT_TRUE(tokenizer->is_special(bos));
  EXPECT_FALSE(tokenizer->is_special(0));
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, "hi")), "hi");
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, "hi"), false), "<|begin_of_text|>hi");
}

TEST(Tokenizer, SpecialTokensInTextCanBePlainText) {
  auto tokenizer = load("qwen");
  const int32_t end = tokenizer->token_to_id("<|im_end|>").value();
  const int32_t think = tokenizer->token_to_id("<think>").value();
  EXPECT_EQ(encode(*tokenizer, "<|im_end|>"), Ids{end});
  const Ids plain = encode(*tokenizer, "<|im_end|><think>", {.parse_special_tokens = false});
  EXPECT_GT(plain.size(), 3u);
  EXPECT_EQ(plain.back(), think) << "added tokens that are not special are always found";
  EXPECT_EQ(std::count(plain.begin(), plain.end(), end), 0);
  EXPECT_EQ(tokenizer->decode(plain), "<|im_end|><think>");
}

TEST(Tokenizer, LongestAddedTokenWins) {
  auto tokenizer = load("llama3");
  EXPECT_EQ(encode(*tokenizer, "<|reserved|>x", {.add_special_tokens = false}),
            Ids{tokenizer->token_to_id("<|reserved|>x").value()});
}

TEST(Tokenizer, SingleWordTokensStandAlone) {
  Parts parts;
  parts.added = R"([{"id":300,"content":"both","single_word":true,"special":false,"normalized":false}])";
  auto tokenizer = parse(parts);
  EXPECT_EQ(encode(*tokenizer, "both"), Ids{300});
  const auto count = [&](std::string_view text) {
    const Ids ids = encode(*tokenizer, text);
    return std::count(ids.begin(), ids.end(), 300);
  };
  EXPECT_EQ(count("both ends, (both) both."), 3);
  EXPECT_EQ(count("bothends xboth both_ \u00e9both both\u4e2d both9"), 0);
}

TEST(Tokenizer, NormalizedTokensAreFoundInNormalizedText) {
  Parts parts;
  parts.normalizer = R"({"type":"NFC"})";
  parts.added =
      R"([{"id":300,"content":"e\u0301","normalized":true},{"id":301,"content":"a\u030a","normalized":false}])";
  auto tokenizer = parse(parts);
  EXPECT_EQ(encode(*tokenizer, "\u00e9"), Ids{300});
  EXPECT_EQ(encode(*tokenizer, "e\u0301"), Ids{300});
  EXPECT_EQ(encode(*tokenizer, "a\u030a"), Ids{301});
  EXPECT_EQ(encode(*tokenizer, "\u00e5").size(), 2u);
}

TEST(Tokenizer, StripFlagsTakeWhiteSpaceAlong) {
  Parts parts;
  parts.added = R"([{"id":300,"content":"<m>","lstrip":true},{"id":301,"content":"<s>","rstrip":true}])";
  auto tokenizer = parse(parts);
  EXPECT_EQ(encode(*tokenizer, "a \t\u3000<m> b"), (Ids{'a', 300, ' ', 'b'}));
  EXPECT_EQ(encode(*tokenizer, "a <s> \n\nb"), (Ids{'a', ' ', 301, 'b'}));
  EXPECT_EQ(encode(*tokenizer, "<s>  <m>"), (Ids{301, 300}));
}

TEST(Tokenizer, DigitsAndSplitBehaviors) {
  const auto pieces = [](const std::string& behavior, const std::string& invert) {
    Parts parts;
    parts.pre_tokenizer =
        R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"String":"-"},"behavior":")" +
        behavior + R"(","invert":)" + invert +
        R"(},{"type":"ByteLevel","add_prefix_space":true,"use_regex":false}]})";
    // A prefix space marks where each piece starts.
    return parse(parts)->decode(encode(*parse(parts), "-a--b"));
  };
  EXPECT_EQ(pieces("Isolated", "false"), " - a - - b");
  EXPECT_EQ(pieces("Removed", "false"), " a b");
  EXPECT_EQ(pieces("Removed", "true"), " - - -");
  EXPECT_EQ(pieces("MergedWithPrevious", "false"), " - a- - b");
  EXPECT_EQ(pieces("MergedWithNext", "false"), " -a - -b");
  EXPECT_EQ(pieces("Contiguous", "false"), " - a -- b");
  Parts digits;
  digits.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},
      {"type":"ByteLevel","add_prefix_space":true,"use_regex":false}]})";
  EXPECT_EQ(parse(digits)->decode(encode(*parse(digits), "a12b")), " a 1 2 b");
}

TEST(Tokenizer, InvalidUtf8BecomesTheReplacement) {
  auto tokenizer = load("llama3");
  EXPECT_EQ(encode(*tokenizer, "a\xff\xc3"), encode(*tokenizer, "a\ufffd\ufffd"));
}

TEST(Tokenizer, StreamNeverEmitsHalfACharacter) {
  auto tokenizer = parse(Parts());
  const std::string text = "a中🙂é";
  Tokenizer::Stream stream(*tokenizer);
  std::string out;
  for (const char byte : text) {
    stream.push(static_cast<uint8_t>(byte), out);
    EXPECT_TRUE(text.starts_with(out)) << out;
  }
  EXPECT_EQ(out, text);
  stream.push(0xE4, out);
  stream.push(0xB8, out);
  EXPECT_EQ(out, text);
  stream.push('x', out);  // the character can't be finished any more
  EXPECT_EQ(out, text + "\ufffdx");
  stream.push(0xF0, out);
  stream.finish(out);
  stream.finish(out);
  EXPECT_EQ(out, text + "\ufffdx\ufffd");
}

TEST(Tokenizer, UnknownIdsDecodeToNothing) {
  auto tokenizer = load("qwen");
  for (const int32_t id : {-1, tokenizer->vocab_size(), INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer->token_bytes(id), "");
    EXPECT_EQ(tokenizer->id_to_token(id), "");
    EXPECT_FALSE(tokenizer->is_special(id));
    EXPECT_EQ(tokenizer->decode(Ids{id}), "");
  }
  Parts gaps;
  gaps.added = R"([{"id":1000,"content":"<x>","special":true}])";
  auto with_gaps = parse(gaps);
  EXPECT_EQ(with_gaps->vocab_size(), 1001);
  EXPECT_EQ(with_gaps->decode(Ids{500, 'a', 999}), "a");
  EXPECT_EQ(with_gaps->id_to_token(1000), "<x>");
}

TEST(Tokenizer, ConfigNamesTokensAndOverrulesThePostProcessor) {
  Parts parts;
  parts.added = R"([{"id":300,"content":"<s>","special":true},{"id":301,"content":"</s>","special":true}])";
  const std::string tokens = R"("bos_token":"<s>","eos_token":{"content":"</s>"})";
  EXPECT_EQ(encode(*parse(parts, "{" + tokens + "}"), "a"), Ids{'a'});
  EXPECT_EQ(encode(*parse(parts, "{" + tokens + R"(,"add_bos_token":true,"add_eos_token":true})"), "a"),
            (Ids{300, 'a', 301}));
  parts.post_processor = R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},
      {"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[300]}}})";
  EXPECT_EQ(encode(*parse(parts, "{" + tokens + R"(,"add_bos_token":true})"), "a"), (Ids{300, 'a'}));
  EXPECT_EQ(encode(*parse(parts, "{" + tokens + R"(,"add_bos_token":false})"), "a"), Ids{'a'});
  EXPECT_EQ(parse(parts, "{" + tokens + "}")->eos_token_id(), 301);
  EXPECT_NE(error_of(parts, R"({"add_eos_token":true})").find("eos_token is missing"), std::string::npos);
}

TEST(Tokenizer, ConfigAddsTokensThatTheFileLacks) {
  auto tokenizer =
      parse(Parts(), R"({"added_tokens_decoder":{"65":{"content":"clash"},"400":{"content":"<new>"}}})");
  EXPECT_EQ(encode(*tokenizer, "<new>"), Ids{400});
  EXPECT_EQ(tokenizer->id_to_token(65), "A");
  EXPECT_NE(error_of(Parts(), R"({"added_tokens_decoder":{"x":{"content":"y"}}})").find("\"x\""),
            std::string::npos);
}

TEST(Tokenizer, UnsupportedStagesAreNamed) {
  const auto with = [](std::string Parts::* member, const std::string& value) {
    Parts parts;
    parts.*member = value;
    return error_of(parts);
  };
  EXPECT_EQ(
      with(&Parts::model_type, "Other"),
      "tokenizer.json: model.type \"Other\" is not supported; supported: BPE, Unigram, WordPiece, WordLevel");
  EXPECT_NE(with(&Parts::normalizer, R"({"type":"Other"})").find("normalizer \"Other\" is not supported"),
            std::string::npos);
  EXPECT_NE(
      with(&Parts::pre_tokenizer, R"({"type":"UnicodeScripts"})").find("\"UnicodeScripts\" is not supported"),
      std::string::npos);
  EXPECT_NE(with(&Parts::pre_tokenizer, R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},
                 {"type":"ByteLevel"}]})")
                .find("2 ByteLevel"),
            std::string::npos);
  EXPECT_NE(with(&Parts::post_processor, R"({"type":"Other"})").find("\"Other\""), std::string::npos);
  EXPECT_NE(with(&Parts::decoder, R"({"type":"CTC"})").find("\"CTC\""), std::string::npos);
  EXPECT_NE(with(&Parts::pre_tokenizer, R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"})")
                .find("does not compile"),
            std::string::npos);
}

TEST(Tokenizer, PostProcessors) {
  Parts parts;
  parts.added = R"([{"id":300,"content":"<s>","special":true},{"id":301,"content":"</s>","special":true}])";
  for (const char* type : {"BertProcessing", "RobertaProcessing"}) {
    parts.post_processor = R"({"type":")" + std::string(type) + R"(","cls":["<s>",300],"sep":["</s>",301]})";
    EXPECT_EQ(encode(*parse(parts), "a"), (Ids{300, 'a', 301}));
    EXPECT_EQ(encode(*parse(parts), "a", {.add_special_tokens = false}), Ids{'a'});
  }
  const auto error = [&](const std::string& processor) {
    parts.post_processor = processor;
    return error_of(parts);
  };
  EXPECT_NE(error(R"({"type":"BertProcessing","cls":["<s>",300]})").find("BertProcessing.sep"),
            std::string::npos);
  EXPECT_NE(error(R"({"type":"BertProcessing","cls":["<s>",999],"sep":["</s>",301]})").find("id 999"),
            std::string::npos);
  constexpr const char* kA = R"({"Sequence":{"id":"A","type_id":0}})";
  constexpr const char* kB = R"({"Sequence":{"id":"B","type_id":1}})";
  const auto of = [&](const std::string& single, const std::string& pair) {
    return error(R"({"type":"TemplateProcessing","single":[)" + single + R"(],"pair":[)" + pair +
                 R"(],"special_tokens":{}})");
  };
  EXPECT_EQ(of(kA, std::string(kA) + "," + kB), "no error");
  EXPECT_NE(of(kB, kA).find("text B 1 times"), std::string::npos);
  EXPECT_NE(of(std::string(kA) + "," + kA, kA).find("text A 2 times"), std::string::npos);
  EXPECT_NE(of(kA, R"({"Sequence":{"id":"C"}})").find("TemplateProcessing.pair"), std::string::npos);
  EXPECT_NE(of(kA, R"({"SpecialToken":{"id":"<x>"}})").find("\"<x>\""), std::string::npos);
}

TEST(Tokenizer, FramesOfPairs) {
  using Frame = text::PairFrame;
  const auto frame = [](const std::string& spec) {
    const auto json = text::parse_json(spec, "x");
    return text::parse_pair_frame(&*json);
  };
  const auto expect = [&](const std::string& spec, const std::vector<Frame::Id>& before,
                          const std::vector<Frame::Id>& between, const std::vector<Frame::Id>& after,
                          int32_t second_type) {
    const auto got = frame(spec);
    ASSERT_TRUE(got.ok() && *got) << spec;
    EXPECT_EQ((*got)->before, before);
    EXPECT_EQ((*got)->between, between);
    EXPECT_EQ((*got)->after, after);
    EXPECT_EQ((*got)->first_type, 0);
    EXPECT_EQ((*got)->second_type, second_type);
  };
  const std::string ids = R"("cls":["<s>",5],"sep":["</s>",6]})";
  expect(R"({"type":"BertProcessing",)" + ids, {{5, 0}}, {{6, 0}}, {{6, 1}}, 1);
  expect(R"({"type":"RobertaProcessing",)" + ids, {{5, 0}}, {{6, 0}, {6, 0}}, {{6, 0}}, 0);
  const auto of = [](const std::string& pair) {
    return R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],"pair":[)" + pair +
           R"(],"special_tokens":{"C":{"ids":[5,7]},"S":{"ids":[6]}}})";
  };
  const std::string a = R"({"Sequence":{"id":"A","type_id":0}})",
                    b = R"({"Sequence":{"id":"B","type_id":1}})";
  const std::string pair = R"({"SpecialToken":{"id":"C","type_id":0}},)" + a +
                           R"(,{"SpecialToken":{"id":"S","type_id":0}},)" + b +
                           R"(,{"SpecialToken":{"id":"S","type_id":1}})";
  expect(of(pair), {{5, 0}, {7, 0}}, {{6, 0}}, {{6, 1}}, 1);
  expect(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},)" + of(pair) + "]}", {{5, 0}, {7, 0}},
         {{6, 0}}, {{6, 1}}, 1);
  for (const char* none : {"null", R"({"type":"ByteLevel"})", R"({"type":"Sequence","processors":[]})"})
    EXPECT_TRUE(frame(none).ok() && !*frame(none)) << none;
  for (const std::string& bad :
       {a, b + "," + a, a + "," + b + "," + b, std::string(R"({"Sequence":{"id":"C"}})"),
        a + R"(,{"Sequence":{"id":"B","type_id":-1}})"})
    EXPECT_FALSE(frame(of(bad)).ok()) << bad;
}

// The small SentencePiece model of the tests below.
std::string spm(const std::string& normalizer, const std::string& pre_tokenizer, const std::string& decoder,
                const std::string& more_added = "") {
  std::string vocab = R"("<unk>":0,"<s>":1,"</s>":2,"\u2581":3,"a":4,"b":5,"\u2581a":6,"\u2581\u2581":7)";
  for (int byte = 0; byte < 256; ++byte) {
    char token[32];
    std::snprintf(token, sizeof token, ",\"<0x%02X>\":%d", static_cast<unsigned>(byte), 10 + byte);
    vocab += token;
  }
  return R"({"added_tokens":[{"id":1,"content":"<s>","special":true},{"id":2,"content":"</s>","special":true})" +
         more_added + R"(],"normalizer":)" + normalizer + R"(,"pre_tokenizer":)" + pre_tokenizer +
         R"(,"decoder":)" + decoder +
         R"(,"model":{"type":"BPE","unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,"vocab":{)" +
         vocab + R"(},"merges":["\u2581 a","\u2581 \u2581"]}})";
}

constexpr const char* kLlamaNormalizer =
    R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"\u2581"},
       {"type":"Replace","pattern":{"String":" "},"content":"\u2581"}]})";
constexpr const char* kLlamaDecoder =
    R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"\u2581"},"content":" "},
       {"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})";

std::unique_ptr<Tokenizer> parse_text(const std::string& json, const std::string& config = "",
                                      const std::string& map = "") {
  auto tokenizer = Tokenizer::parse(json, config, map);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return tokenizer ? *std::move(tokenizer) : nullptr;
}

TEST(Tokenizer, SentencePieceBpe) {
  auto tokenizer = parse_text(spm(kLlamaNormalizer, "null", kLlamaDecoder));
  EXPECT_EQ(encode(*tokenizer, "a b"), (Ids{6, 3, 5}));
  EXPECT_EQ(encode(*tokenizer, ""), Ids{});
  EXPECT_EQ(encode(*tokenizer, " a"), (Ids{3, 6})) << "the mark and the letter merge first";
  EXPECT_EQ(encode(*tokenizer, "  b"), (Ids{7, 3, 5}));
  EXPECT_EQ(encode(*tokenizer, "a<s>a"), (Ids{6, 1, 6})) << "every section gets a mark";
  EXPECT_EQ(encode(*tokenizer, "\u00e9"), (Ids{3, 10 + 0xC3, 10 + 0xA9}));
  EXPECT_EQ(tokenizer->decode(Ids{6, 3, 5}), "a b");
  EXPECT_EQ(tokenizer->decode(Ids{1, 6}), "a");
  EXPECT_EQ(tokenizer->decode(Ids{1, 6}, false), "<s> a");
  EXPECT_EQ(tokenizer->decode(Ids{3, 10 + 0xC3, 10 + 0xA9, 10 + 0xE4, 4}), "\u00e9\ufffda");
  EXPECT_EQ(tokenizer->decode(Ids{10 + 0xE4, 10 + 0xB8}), "\ufffd\ufffd");
  EXPECT_EQ(tokenizer->token_bytes(6), " a");
  EXPECT_EQ(tokenizer->token_bytes(10 + 0xE4), "\xE4");
  EXPECT_EQ(tokenizer->token_bytes(1), "<s>");
}

TEST(Tokenizer, MetaspaceFirstMarksTheStartOfTheInputOnly) {
  const auto with = [](const char* scheme) {
    return parse_text(spm("null",
                          R"({"type":"Metaspace","replacement":"\u2581","split":false,"prepend_scheme":")" +
                              std::string(scheme) + "\"}",
                          kLlamaDecoder, R"(,{"id":300,"content":"<n>","normalized":true})"));
  };
  EXPECT_EQ(encode(*with("first"), "a<s>a"), (Ids{6, 1, 4}));
  EXPECT_EQ(encode(*with("first"), "<s>a"), (Ids{1, 4}));
  EXPECT_EQ(encode(*with("first"), "a<n>a"), (Ids{6, 300, 4}));
  EXPECT_EQ(encode(*with("always"), "a<s>a"), (Ids{6, 1, 6}));
  EXPECT_EQ(encode(*with("never"), "a<s>a"), (Ids{4, 1, 4}));
  EXPECT_EQ(encode(*with("always"), " a"), Ids{6});
}

TEST(Tokenizer, AStreamGoesOnWhereItsContextEnds) {
  auto tokenizer = parse_text(spm(kLlamaNormalizer, "null", kLlamaDecoder));
  const auto text = [&](const Ids& context, const Ids& ids) {
    Tokenizer::Stream stream(*tokenizer, true, context);
    std::string out;
    for (const int32_t id : ids)
      stream.push(id, out);
    stream.finish(out);
    return out;
  };
  EXPECT_EQ(text({}, {6}), "a");
  EXPECT_EQ(text({1}, {6}), "a") << "a skipped token begins no text";
  EXPECT_EQ(text({6}, {6}), " a");
  EXPECT_EQ(text({6, 10 + 0xC3}, {10 + 0xA9}), "\uFFFD") << "a stray byte, as decode() of it alone";
  EXPECT_EQ(text({6, 10 + 0xC3}, {6}), " a");
  EXPECT_EQ(text(Ids(1000, 6), {6}), " a");
  Ids long_context(1000, 6);
  long_context.back() = 10 + 0xC3;
  EXPECT_EQ(text(long_context, {6}), " a");
}

constexpr const char* kBert =
    R"({"normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"},
    "decoder":{"type":"WordPiece"},"model":{"type":"WordPiece","unk_token":"[UNK]","vocab":{"[UNK]":0,"it":1,"s":2,
    "'":3,"##s":4,".":5,"[PAD]":6,"do":7,"not":8}}})";

TEST(Tokenizer, WordPieceDecodingAndCleanUp) {
  auto plain = parse_text(kBert);
  EXPECT_EQ(encode(*plain, "It's ITS, \u0162"), (Ids{1, 3, 2, 1, 4, 0, 0}));
  EXPECT_EQ(plain->decode(Ids{1, 4, 3, 2, 5}), "its ' s.") << "the decoder sees one token at a time";
  EXPECT_EQ(plain->token_bytes(1), " it");
  EXPECT_EQ(plain->token_bytes(4), "s");
  auto cleaned = parse_text(kBert, R"({"clean_up_tokenization_spaces":true})");
  EXPECT_EQ(cleaned->decode(Ids{1, 3, 2, 5, 7, 8}), "it's. do not");
  Tokenizer::Stream stream(*cleaned);
  std::string out;
  for (const int32_t id : {1, 3, 2})
    stream.push(id, out);
  EXPECT_EQ(out, "it's");
  EXPECT_EQ(parse_text(kBert, R"({"clean_up_tokenization_spaces":false})")->decode(Ids{1, 3}), "it '");
}

TEST(Tokenizer, CleanUpIsNotForBpe) {
  Parts parts;
  auto tokenizer = parse(parts, R"({"clean_up_tokenization_spaces":true})");
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, "x != y ; it 's .")), "x != y ; it 's .");
}

TEST(Tokenizer, ConfiguredSpecialTokensAreSpecial) {
  EXPECT_FALSE(parse_text(kBert)->is_special(6));
  auto tokenizer = parse_text(kBert, R"({"pad_token":"[PAD]","bos_token":"nowhere"})");
  EXPECT_TRUE(tokenizer->is_special(6));
  EXPECT_EQ(encode(*tokenizer, "it[PAD]it"), (Ids{1, 6, 1}));
  EXPECT_EQ(tokenizer->decode(Ids{1, 6, 1}), "it it");
  EXPECT_EQ(tokenizer->bos_token_id(), std::nullopt);
  EXPECT_TRUE(parse_text(kBert, R"({"additional_special_tokens":["[PAD]"]})")->is_special(6));
  auto from_map = parse_text(kBert, R"({"unk_token":"[UNK]"})",
                             R"({"unk_token":"it","pad_token":{"content":"[PAD]","lstrip":true}})");
  EXPECT_EQ(from_map->special_token("unk_token"), "[UNK]") << "tokenizer_config.json comes first";
  EXPECT_EQ(encode(*from_map, "it \t[PAD]"), (Ids{1, 6}));
  EXPECT_FALSE(Tokenizer::parse(kBert, "", "[]"));
}

TEST(Tokenizer, LlamaClassesBeginWithBosByDefault) {
  const std::string names = R"({"bos_token":"<s>","eos_token":"</s>","tokenizer_class":)";
  const auto first = [&](const std::string& config) {
    return encode(*parse_text(spm("null", "null", kLlamaDecoder), config), "a");
  };
  EXPECT_EQ(first(names + R"("LlamaTokenizerFast"})"), (Ids{1, 4}));
  EXPECT_EQ(first(names + R"("GemmaTokenizer","add_eos_token":true})"), (Ids{1, 4, 2}));
  EXPECT_EQ(first(names + R"("LlamaTokenizer","add_bos_token":false})"), Ids{4});
  EXPECT_EQ(first(names + R"("PreTrainedTokenizerFast"})"), Ids{4});
}

// For any ids in any order, the streamed text is that of decode(), and is valid UTF-8.
TEST(Tokenizer, StreamedTextIsTheDecodedText) {
  const std::string parts[] = {
      spm(kLlamaNormalizer, "null", kLlamaDecoder),
      spm("null", "null", R"({"type":"Metaspace"})"),
      spm("null", "null", R"({"type":"BPEDecoder","suffix":"a"})"),
      spm("null", "null", R"({"type":"WordPiece","prefix":"\u2581"})"),
      spm("null", "null", "null"),
      spm("null", "null", R"({"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},
          {"type":"Replace","pattern":{"String":"aab"},"content":"a"},
          {"type":"Strip","content":"a","start":2,"stop":2}]})"),
      kBert,
      Parts().json()};
  std::mt19937 rng(7);
  for (const std::string& json : parts) {
    auto tokenizer = parse_text(json, R"({"clean_up_tokenization_spaces":true})");
    for (int round = 0; round < 300; ++round) {
      Ids ids;
      for (size_t n = rng() % 12; n > 0; --n) {
        const auto size = static_cast<uint32_t>(tokenizer->vocab_size());
        ids.push_back(static_cast<int32_t>(rng() % (rng() % 2 ? 9 : size + 2)));
      }
      Tokenizer::Stream stream(*tokenizer, round % 2 == 0);
      std::string out;
      for (const int32_t id : ids) {
        stream.push(id, out);
        ASSERT_TRUE(text::is_valid_utf8(out));
      }
      stream.finish(out);
      ASSERT_EQ(out, tokenizer->decode(ids, round % 2 == 0)) << json.substr(0, 400);
    }
  }
}

TEST(Tokenizer, MegabytesTakeNoTimeToSpeakOf) {
  // Anything quadratic would take many minutes here.
  const std::string words = [] {
    std::string out;
    while (out.size() < 300'000)
      out += "it's not \u00e9\u0301 ";
    return out;
  }();
  constexpr const char* kUnigram = R"({"normalizer":{"type":"NFKC"},"pre_tokenizer":{"type":"Metaspace"},
      "decoder":{"type":"Metaspace"},"model":{"type":"Unigram","unk_id":0,
      "vocab":[["?",0],["a",-1],["aa",-1.5],["aaaa",-2],["\u2581",-3]]}})";
  for (const std::string& json :
       {spm(kLlamaNormalizer, "null", kLlamaDecoder), std::string(kUnigram), std::string(kBert)}) {
    auto tokenizer = parse_text(json);
    for (const std::string& text : {std::string(300'000, 'a'), std::string(300'000, ' '), words}) {
      auto ids = tokenizer->encode(text);
      ASSERT_TRUE(ids);
      EXPECT_TRUE(text::is_valid_utf8(tokenizer->decode(*ids)));
    }
  }
}

// Invariant over all stages: no text has fewer ids than the bound from its length.
TEST(Tokenizer, ALengthBoundsTheIds) {
  std::vector<std::unique_ptr<Tokenizer>> bounded;
  for (const char* name : {"gpt2", "llama3", "qwen"})
    bounded.push_back(load(name));
  bounded.push_back(parse({}));
  for (const char* form : {R"({"type":"NFC"})", R"({"type":"NFKC"})", R"({"type":"Lowercase"})",
                           R"({"type":"Replace","pattern":{"String":"aaa"},"content":"b"})",
                           R"({"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"NFC"}]})"}) {
    Parts parts;
    parts.normalizer = form;
    parts.added =
        R"([{"id":300,"content":"aaaaa aaaaa","special":false},{"id":301,"content":"<|end|>","special":true}])";
    bounded.push_back(parse(parts));
  }
  Parts strips;
  strips.added = R"([{"id":300,"content":"<m>","special":true,"lstrip":true,"rstrip":true}])";
  bounded.push_back(parse(strips));
  bounded.push_back(parse_text(spm(kLlamaNormalizer, "null", kLlamaDecoder)));
  std::string words;
  for (int i = 0; i < 300; ++i)
    words += i % 7 == 0   ? "   <m>\n   "
             : i % 5 == 0 ? "<|end|>"
                          : "The words, 123 \u03b9\u0308\u0301 \U0001d6c4 ";
  for (const auto& tokenizer : bounded) {
    for (const std::string& text :
         {std::string(9000, 'a'), std::string(9000, ' '), words, std::string("\xff\xfe\x80"), std::string(),
          std::string("aaaaa aaaaa") + std::string(9000, ' '), words + std::string(9000, '\xe2')}) {
      const auto ids = tokenizer->encode(text, {.add_special_tokens = false});
      ASSERT_TRUE(ids);
      EXPECT_LE(tokenizer->least_ids(text), ids->size()) << text.substr(0, 20);
    }
    // A useful bound.
    EXPECT_GT(tokenizer->least_ids(std::string(100'000, 'a')), 100U);
  }
  // Here many bytes may become one id, or no id.
  EXPECT_EQ(parse_text(kBert)->least_ids(std::string(100'000, 'a')), 0U);
  for (const char* stage : {R"({"type":"StripAccents"})", R"({"type":"Strip"})",
                            R"({"type":"Replace","pattern":{"Regex":"a+"},"content":"b"})"}) {
    Parts parts;
    parts.normalizer = stage;
    EXPECT_EQ(parse(parts)->least_ids(std::string(100'000, 'a')), 0U) << stage;
  }
  Parts removed;
  removed.pre_tokenizer =
      R"({"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},{"type":"ByteLevel"}]})";
  EXPECT_EQ(parse(removed)->least_ids(std::string(100'000, ' ')), 0U);
}

TEST(Tokenizer, StopsOnceThereAreTooManyIds) {
  for (const auto& tokenizer : {parse_text(kBert), parse({})}) {
    std::string text;
    for (int i = 0; i < 1000; ++i)
      text += "a b <|end|> ";
    const auto all = tokenizer->encode(text);
    ASSERT_TRUE(all);
    EncodeOptions options;
    options.most_ids = all->size();
    EXPECT_EQ(*tokenizer->encode(text, options), *all);
    options.most_ids = 10;
    const auto some = *tokenizer->encode(text, options);
    EXPECT_GT(some.size(), 10U);
    EXPECT_LT(some.size(), 20U);
    // Except for the ids around the text, they are its first ids.
    EXPECT_TRUE(std::equal(some.begin(), some.begin() + 11, all->begin()));
  }
}

TEST(Tokenizer, InconsistentAddedTokensAreErrors) {
  const auto with = [](const std::string& added) {
    Parts parts;
    parts.added = added;
    return error_of(parts);
  };
  EXPECT_NE(with(R"([{"id":65,"content":"B?"}])").find("but \"A\" has id 65"), std::string::npos);
  EXPECT_NE(with(R"([{"id":300,"content":"A"}])").find("but \"A\" has id 65"), std::string::npos);
  EXPECT_NE(with(R"([{"id":300,"content":"x1"},{"id":300,"content":"x2"}])").find("\"x1\" has id 300"),
            std::string::npos);
  EXPECT_EQ(with(R"([{"id":300,"content":"x1"},{"id":300,"content":"x1"}])"), "no error");
  EXPECT_NE(with(R"([{"id":-4,"content":"x"}])").find("an integer from 0"), std::string::npos);
  EXPECT_NE(with(R"([{"id":99999999,"content":"x"}])").find("an integer from 0"), std::string::npos);
  EXPECT_NE(with(R"([{"id":300,"content":""}])").find("not empty"), std::string::npos);
  EXPECT_NE(with(R"([{"id":300}])").find("not empty"), std::string::npos);
  EXPECT_NE(with(R"([{"id":300,"content":")" + std::string(2000, 'x') + R"("}])").find("at most 1024"),
            std::string::npos);
  EXPECT_NE(with("{}").find("must be a list"), std::string::npos);
  EXPECT_NE(with("[7]").find("an object is needed"), std::string::npos);
}

TEST(Tokenizer, MissingFilesAreErrors) {
  auto tokenizer = Tokenizer::load("/nonexistent");
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, ErrorCode::not_found);
  EXPECT_NE(tokenizer.error().message.find("/nonexistent/tokenizer.json"), std::string::npos);
}

TEST(Tokenizer, LoadsTheFilesOfBeforeTokenizerJson) {
  const auto dir =
      std::filesystem::temp_directory_path() / ("fovea_tokenizer_files_" + std::to_string(::getpid()));
  std::filesystem::create_directories(dir);
  const auto message = [&] {
    auto tokenizer = Tokenizer::load(dir.string());
    return tokenizer ? std::string("no error") : tokenizer.error().message;
  };
  std::ofstream(dir / "tokenizer.model") << "not read";
  EXPECT_NE(message().find("tokenizer.model (SentencePiece) is not read; convert it"), std::string::npos);
  std::ofstream(dir / "vocab.txt") << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nit\n##s\n";
  EXPECT_NE(message().find("tokenizer_class is not given"), std::string::npos);
  std::ofstream(dir / "tokenizer_config.json") << R"({"tokenizer_class":"BertTokenizer"})";
  auto bert = Tokenizer::load(dir.string());
  ASSERT_TRUE(bert) << bert.error().message;
  EXPECT_EQ(encode(**bert, "ITS [MASK]"), (Ids{2, 5, 6, 4, 3}));
  EXPECT_EQ((*bert)->decode(Ids{2, 5, 6, 4, 3}), "its");
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace fovea
