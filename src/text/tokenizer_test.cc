#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include "text/byte_level.h"

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
  EXPECT_EQ(with(&Parts::model_type, "Unigram"),
            "tokenizer.json: model.type \"Unigram\" is not supported; supported: BPE");
  EXPECT_EQ(with(&Parts::normalizer, R"({"type":"Precompiled"})"),
            "tokenizer.json: normalizer \"Precompiled\" is not supported; supported: null, NFC, Sequence");
  EXPECT_EQ(with(&Parts::pre_tokenizer, R"({"type":"Metaspace"})"),
            "tokenizer.json: pre_tokenizer \"Metaspace\" is not supported; supported: Split, ByteLevel, "
            "Digits, Sequence");
  EXPECT_NE(with(&Parts::pre_tokenizer, "null").find("null is not supported"), std::string::npos);
  EXPECT_NE(with(&Parts::pre_tokenizer, R"({"type":"Digits"})").find("0 ByteLevel"), std::string::npos);
  EXPECT_NE(with(&Parts::post_processor, R"({"type":"BertProcessing"})").find("\"BertProcessing\""),
            std::string::npos);
  EXPECT_NE(with(&Parts::decoder, R"({"type":"Metaspace"})").find("\"Metaspace\""), std::string::npos);
  EXPECT_NE(with(&Parts::pre_tokenizer, R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"})")
                .find("does not compile"),
            std::string::npos);
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

}  // namespace
}  // namespace fovea
