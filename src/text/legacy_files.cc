#include "text/legacy_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "fovea/result.h"
#include "text/json_value.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace fovea::text {
namespace {

using nlohmann::json;

bool one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The lines of a file, without their ends; a last empty line is none.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string token_named(const TokenizerConfig& config, const char* name, const char* fallback) {
  const auto it = config.special_tokens.find(name);
  return it == config.special_tokens.end() ? fallback : it->second;
}

// An added token of the vocabulary; an error names it if the vocabulary lacks it.
Result<json> special_token(const json& vocab, const std::string& file, const std::string& content) {
  const auto it = vocab.find(content);
  if (it == vocab.end() || !it->is_number_integer()) {
    return invalid(file + " has no token " + Json(content).describe() +
                   ", which this kind of tokenizer needs");
  }
  return json{{"id", *it}, {"content", content}, {"special", true}, {"normalized", false}};
}

// [CLS] text [SEP] and the like.
struct Wrapping {
  std::string cls, sep, type;
};

Result<json> wrapped(json document, const json& vocab, const std::string& file, const Wrapping& wrapping,
                     const std::vector<std::string>& specials) {
  json added = json::array();
  for (const std::string& content : specials) {
    FOVEA_TRY(token, special_token(vocab, file, content));
    if (std::find(added.begin(), added.end(), token) == added.end()) added.push_back(std::move(token));
  }
  document["added_tokens"] = std::move(added);
  if (!wrapping.type.empty()) {
    document["post_processor"] = {{"type", wrapping.type},
                                  {"cls", {wrapping.cls, vocab.at(wrapping.cls)}},
                                  {"sep", {wrapping.sep, vocab.at(wrapping.sep)}}};
  }
  return document;
}

Result<json> from_vocab_txt(const std::string& text, const TokenizerConfig& config) {
  if (!is_valid_utf8(text)) return invalid("vocab.txt is not UTF-8");
  json vocab = json::object();
  int64_t id = 0;
  for (const std::string_view line : lines_of(text)) {
    if (!vocab.emplace(std::string(line), id++).second) {
      return invalid("vocab.txt: token " + Json(std::string(line)).describe() + " appears twice");
    }
  }
  const bool lowercase = config.do_lower_case.value_or(true);
  const std::string unk = token_named(config, "unk_token", "[UNK]");
  const std::string cls = token_named(config, "cls_token", "[CLS]");
  const std::string sep = token_named(config, "sep_token", "[SEP]");
  json document;
  document["normalizer"] = {{"type", "BertNormalizer"},
                            {"clean_text", true},
                            {"handle_chinese_chars", config.tokenize_chinese_chars.value_or(true)},
                            {"strip_accents", config.strip_accents.value_or(lowercase)},
                            {"lowercase", lowercase}};
  document["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  document["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  document["model"] = {{"type", "WordPiece"},
                       {"unk_token", unk},
                       {"continuing_subword_prefix", "##"},
                       {"max_input_chars_per_word", 100},
                       {"vocab", vocab}};
  const std::vector<std::string> specials{token_named(config, "pad_token", "[PAD]"), unk, cls, sep,
                                          token_named(config, "mask_token", "[MASK]")};
  return wrapped(std::move(document), vocab, "vocab.txt", {cls, sep, "BertProcessing"}, specials);
}

// merges.txt: "left right" a line, after an optional line "#version".
json merges_of(std::string_view text) {
  json merges = json::array();
  for (const std::string_view line : lines_of(text)) {
    const bool is_version = merges.empty() && line.starts_with("#version");
    if (!line.empty() && !is_version) merges.push_back(std::string(line));
  }
  return merges;
}

Result<json> from_vocab_json(const std::string& vocab_text, const std::string& merges,
                             const TokenizerConfig& config, bool like_roberta) {
  if (!is_valid_utf8(merges)) return invalid("merges.txt is not UTF-8");
  // Our parser reads it first, since it bounds the nesting.
  FOVEA_TRY(checked, parse_json(vocab_text, "vocab.json"));
  if (!checked.object()) return invalid("vocab.json must hold an object");
  json vocab = json::object();
  for (const auto& [token, value] : *checked.object()) {
    FOVEA_TRY(id, parse_token_id(value, "vocab.json: " + Json(token).describe()));
    vocab[token] = id;
  }
  const bool prefix_space = config.add_prefix_space.value_or(false);
  json document;
  document["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", prefix_space}, {"use_regex", true}};
  document["decoder"] = {{"type", "ByteLevel"}};
  document["model"] = {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges_of(merges)}};
  if (!like_roberta) {
    const std::string end = token_named(config, "eos_token", "<|endoftext|>");
    return wrapped(std::move(document), vocab, "vocab.json", {}, {end});
  }
  const std::string cls = token_named(config, "cls_token", "<s>");
  const std::string sep = token_named(config, "sep_token", "</s>");
  const std::vector<std::string> specials{cls, token_named(config, "pad_token", "<pad>"), sep,
                                          token_named(config, "unk_token", "<unk>"),
                                          token_named(config, "mask_token", "<mask>")};
  FOVEA_TRY(out,
            wrapped(std::move(document), vocab, "vocab.json", {cls, sep, "RobertaProcessing"}, specials));
  out["added_tokens"].back()["lstrip"] = true;  // <mask> also consumes the blank before it
  return out;
}

}  // namespace

Result<std::string> tokenizer_json_from(const LegacyFiles& files, const TokenizerConfig& config) {
  const std::string& name = config.tokenizer_class;
  const bool has_pair = files.vocab_json && files.merges_txt;
  const auto text_of = [](Result<json> document) -> Result<std::string> {
    if (!document) return std::move(document).error();
    return document->dump(-1, ' ', false, json::error_handler_t::replace);
  };
  if (files.vocab_txt && one_of(name, {"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"})) {
    return text_of(from_vocab_txt(*files.vocab_txt, config));
  }
  if (has_pair && one_of(name, {"RobertaTokenizer", "BartTokenizer", "LongformerTokenizer"})) {
    return text_of(from_vocab_json(*files.vocab_json, *files.merges_txt, config, true));
  }
  if (has_pair && name == "GPT2Tokenizer") {
    return text_of(from_vocab_json(*files.vocab_json, *files.merges_txt, config, false));
  }
  if (files.vocab_txt || has_pair) {
    return unsupported("tokenizer.json does not exist, and tokenizer_config.json's tokenizer_class is " +
                       (name.empty() ? std::string("not given") : Json(name).describe()) +
                       "; with vocab.txt, BertTokenizer, DistilBertTokenizer and ElectraTokenizer are read, "
                       "with vocab.json and "
                       "merges.txt, GPT2Tokenizer, RobertaTokenizer, BartTokenizer and LongformerTokenizer; "
                       "for others, save the "
                       "fast tokenizer with transformers to get a tokenizer.json");
  }
  if (files.has_sentencepiece_model) {
    return unsupported(
        "tokenizer.json does not exist, and tokenizer.model (SentencePiece) is not read; convert it: load "
        "the fast "
        "tokenizer with transformers and save it");
  }
  return not_found("tokenizer.json does not exist or can't be read; a tokenizer needs it");
}

}  // namespace fovea::text
