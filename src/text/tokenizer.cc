#include "text/tokenizer.h"

#include <algorithm>
#include <deque>
#include <fstream>
#include <sstream>

#include "base/log.h"
#include "fovea/result.h"
#include "text/added_tokens.h"
#include "text/byte_level.h"
#include "text/legacy_files.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/token_decoder.h"
#include "text/token_model.h"
#include "text/tokenizer_config.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea {

using namespace text;

struct Tokenizer::Impl {
  std::unique_ptr<Normalizer> normalizer;       // null: none
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // null: a text is one piece
  std::unique_ptr<TokenModel> model;
  PostProcessor post_processor;
  TokenDecoder decoder;
  TokenizerConfig config;

  std::deque<AddedToken> added;  // the finders and tables point into it
  std::unordered_map<std::string_view, const AddedToken*> added_by_text;
  std::vector<const AddedToken*> added_by_id;  // size = vocab_size
  AddedTokenFinder raw_finder, normalized_finder;

  // Bytes of id i: bytes[byte_offsets[i], byte_offsets[i + 1]).
  std::string bytes;
  std::vector<size_t> byte_offsets;

  // Upper bound on the bytes of a text per id; 0 = no bound. White space that added tokens
  // consume does not count.
  size_t longest_id = 0;
  size_t longest_normalized = 0;  // of added tokens that are matched in normalized text
  bool strips = false;

  Status add_token(AddedToken token);
  Status add_all_tokens(const Json* list);
  Status add_special_tokens();
  Status apply_config_flags(bool has_post_processor);
  Status check_post_processor() const;
  void fill_byte_table();
  void find_longest_id();
  std::optional<int32_t> find(std::string_view token) const;
  std::optional<int32_t> special_id(std::string_view name) const;

  Status encode_section(std::string_view section, bool at_start, const EncodeOptions& options,
                        std::vector<int32_t>& out) const;
  Status encode_plain(std::string text, bool at_start, size_t most_ids, std::vector<int32_t>& out) const;
};

namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 30;

// The whole of a file; nullopt when it can't be opened.
Result<std::optional<std::string>> read_optional(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return std::optional<std::string>();
  const std::streamoff size = file.tellg();
  if (size < 0 || static_cast<uint64_t>(size) > kMaxFileBytes) {
    return io_error(path + " is not a regular file of at most 1 GiB");
  }
  std::string content(static_cast<size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(content.data(), size)) return io_error(path + " could not be read");
  return std::optional<std::string>(std::move(content));
}

// Bytes that occur in UTF-8 but that the vocabulary can't spell would be dropped from every prompt.
void warn_about_missing_bytes(const Vocabulary& vocabulary) {
  int missing = 0;
  for (int byte = 0; byte < 0xF5; ++byte) {
    if (byte == 0xC0 || byte == 0xC1) continue;
    missing += !vocabulary.find(byte_to_char(static_cast<uint8_t>(byte)));
  }
  if (missing > 0) {
    FOVEA_LOG(warning) << "tokenizer.json: the vocabulary has no token for " << missing
                       << " of the bytes of UTF-8; they are dropped from text";
  }
}

}  // namespace

std::optional<int32_t> Tokenizer::Impl::find(std::string_view token) const {
  if (const auto it = added_by_text.find(token); it != added_by_text.end()) return it->second->id;
  return model->vocabulary().find(token);
}

std::optional<int32_t> Tokenizer::Impl::special_id(std::string_view name) const {
  const auto it = config.special_tokens.find(name);
  return it == config.special_tokens.end() ? std::nullopt : find(it->second);
}

Status Tokenizer::Impl::add_token(AddedToken token) {
  const auto clash = [&](std::string_view other, int32_t other_id) {
    return invalid("tokenizer.json: added token " + Json(token.content).describe() + " has id " +
                   std::to_string(token.id) + ", but " + Json(std::string(other)).describe() + " has id " +
                   std::to_string(other_id));
  };
  const Vocabulary& vocabulary = model->vocabulary();
  if (vocabulary.has(token.id) && vocabulary.token(token.id) != token.content) {
    return clash(vocabulary.token(token.id), token.id);
  }
  if (const auto id = vocabulary.find(token.content); id && *id != token.id) return clash(token.content, *id);
  if (const auto it = added_by_text.find(token.content); it != added_by_text.end()) {
    if (it->second->id != token.id) return clash(token.content, it->second->id);
    return {};  // duplicate
  }
  const auto index = static_cast<size_t>(token.id);
  if (index >= added_by_id.size()) added_by_id.resize(index + 1);
  if (added_by_id[index]) return clash(added_by_id[index]->content, token.id);
  const AddedToken& kept = added.emplace_back(std::move(token));
  added_by_id[index] = &kept;
  added_by_text.emplace(kept.content, &kept);
  if (kept.normalized && normalizer) {
    FOVEA_TRY(text, normalizer->apply(kept.content));
    if (!text.empty()) normalized_finder.add(text, kept);
    longest_normalized = std::max(longest_normalized, text.size());
  } else if (kept.normalized) {
    normalized_finder.add(kept.content, kept);
  } else {
    raw_finder.add(kept.content, kept);
  }
  return {};
}

Status Tokenizer::Impl::add_all_tokens(const Json* list) {
  added_by_id.resize(static_cast<size_t>(model->vocabulary().size()));
  if (list && !list->is_null()) {
    if (!list->array()) return invalid("tokenizer.json: added_tokens must be a list");
    for (size_t i = 0; i < list->array()->size(); ++i) {
      FOVEA_TRY(token, parse_added_token((*list->array())[i],
                                         "tokenizer.json: added_tokens[" + std::to_string(i) + "]"));
      FOVEA_RETURN_IF_ERROR(add_token(std::move(token)));
    }
  }
  // tokenizer_config.json repeats the list; only tokens that tokenizer.json lacks are added.
  for (AddedToken& token : config.added_tokens) {
    const auto index = static_cast<size_t>(token.id);
    const bool known = find(token.content) || model->vocabulary().has(token.id) ||
                       (index < added_by_id.size() && added_by_id[index]);
    if (!known) FOVEA_RETURN_IF_ERROR(add_token(std::move(token)));
  }
  config.added_tokens.clear();
  return {};
}

// Tokens that the configuration declares special are special even where tokenizer.json does not list them.
Status Tokenizer::Impl::add_special_tokens() {
  for (const SpecialToken& named : config.named_special_tokens) {
    const auto id = find(named.content);
    if (!id || added_by_id[static_cast<size_t>(*id)] || named.content.empty()) continue;
    AddedToken token;
    token.id = *id;
    token.content = named.content;
    token.single_word = named.single_word;
    token.lstrip = named.lstrip;
    token.rstrip = named.rstrip;
    token.normalized = named.normalized;
    token.special = true;
    FOVEA_RETURN_IF_ERROR(add_token(std::move(token)));
  }
  config.named_special_tokens.clear();
  return {};
}

// add_bos_token and add_eos_token override the post-processor. The Llama family's classes add BOS by default,
// which matters where the file has no post-processor.
Status Tokenizer::Impl::apply_config_flags(bool has_post_processor) {
  constexpr std::string_view kBosByDefault[] = {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer",
                                                "CohereTokenizer"};
  if (!has_post_processor && !config.add_bos_token && special_id("bos_token") &&
      std::ranges::find(kBosByDefault, config.tokenizer_class) != std::end(kBosByDefault)) {
    config.add_bos_token = true;
  }
  const auto id_for = [&](const char* flag, const char* name) -> Result<int32_t> {
    if (const auto id = special_id(name)) return *id;
    return invalid(std::string("tokenizer_config.json: ") + flag + " is true, but " + name +
                   " is missing or not in the vocabulary");
  };
  std::vector<int32_t>& prefix = post_processor.prefix;
  std::vector<int32_t>& suffix = post_processor.suffix;
  if (config.add_bos_token == true) {
    FOVEA_TRY(bos, id_for("add_bos_token", "bos_token"));
    if (prefix.empty() || prefix.front() != bos) prefix.insert(prefix.begin(), bos);
  } else if (config.add_bos_token == false && !prefix.empty() && prefix.front() == special_id("bos_token")) {
    prefix.erase(prefix.begin());
  }
  if (config.add_eos_token == true) {
    FOVEA_TRY(eos, id_for("add_eos_token", "eos_token"));
    if (suffix.empty() || suffix.back() != eos) suffix.push_back(eos);
  } else if (config.add_eos_token == false && !suffix.empty() && suffix.back() == special_id("eos_token")) {
    suffix.pop_back();
  }
  return {};
}

Status Tokenizer::Impl::check_post_processor() const {
  for (const auto* ids : {&post_processor.prefix, &post_processor.suffix}) {
    for (const int32_t id : *ids) {
      const auto index = static_cast<size_t>(id);
      if (!model->vocabulary().has(id) && (index >= added_by_id.size() || !added_by_id[index])) {
        return invalid("tokenizer.json: the post_processor adds id " + std::to_string(id) +
                       ", which is not in the vocabulary");
      }
    }
  }
  return {};
}

void Tokenizer::Impl::fill_byte_table() {
  byte_offsets.reserve(added_by_id.size() + 1);
  for (size_t i = 0; i < added_by_id.size(); ++i) {
    byte_offsets.push_back(bytes.size());
    const auto id = static_cast<int32_t>(i);
    if (added_by_id[i]) {
      bytes += decoder.token_bytes(added_by_id[i]->content, true);
    } else if (model->vocabulary().has(id)) {
      bytes += decoder.token_bytes(model->vocabulary().token(id), false);
    }
  }
  byte_offsets.push_back(bytes.size());
}

void Tokenizer::Impl::find_longest_id() {
  const bool byte_level = pre_tokenizer && pre_tokenizer->byte_level_stages() > 0;
  const size_t shrink = normalizer ? normalizer->most_shrink() : 1;
  const size_t of_model = model->longest_token(byte_level);
  bool strips_normalized = false;
  for (const AddedToken& token : added) {
    strips |= token.lstrip || token.rstrip;
    strips_normalized |= token.normalized && (token.lstrip || token.rstrip);
  }
  const bool loses = shrink == 0 || of_model == 0 || (pre_tokenizer && !pre_tokenizer->keeps_all());
  if (loses || (strips_normalized && normalizer)) return;  // the white space before normalization is unknown
  longest_id = shrink * of_model;
  // Some are matched in normalized text, which may be `shrink` times shorter than the original.
  longest_id = std::max(longest_id, shrink * longest_normalized);
  for (const AddedToken& token : added)
    longest_id = std::max(longest_id, token.content.size());
}

Status Tokenizer::Impl::encode_plain(std::string text, bool at_start, size_t most_ids,
                                     std::vector<int32_t>& out) const {
  if (text.empty()) return {};
  Pieces pieces;
  pieces.spans.push_back({0, text.size()});
  pieces.text = std::move(text);
  pieces.at_start = at_start;
  if (pre_tokenizer) FOVEA_RETURN_IF_ERROR(pre_tokenizer->apply(pieces));
  for (const Span& span : pieces.spans) {
    if (out.size() > most_ids) break;
    model->encode(std::string_view(pieces.text).substr(span.begin, span.size()), out);
  }
  return {};
}

Status Tokenizer::Impl::encode_section(std::string_view section, bool at_start, const EncodeOptions& options,
                                       std::vector<int32_t>& out) const {
  std::string normalized(section);
  if (normalizer) {
    FOVEA_TRY(rewritten, normalizer->apply(std::move(normalized)));
    normalized = std::move(rewritten);
  }
  const size_t most = options.most_ids;
  if (normalized_finder.empty()) return encode_plain(std::move(normalized), at_start, most, out);
  std::vector<AddedTokenFinder::Section> parts;
  normalized_finder.split(normalized, options.parse_special_tokens, parts);
  for (const auto& part : parts) {
    if (out.size() > most) break;
    if (part.token) {
      out.push_back(part.token->id);
    } else {
      FOVEA_RETURN_IF_ERROR(encode_plain(normalized.substr(part.span.begin, part.span.size()),
                                         at_start && part.span.begin == 0, most, out));
    }
  }
  return {};
}

Tokenizer::Tokenizer() : impl_(std::make_unique<Impl>()) {}
Tokenizer::~Tokenizer() = default;

namespace {

struct TokenizerFiles {
  std::string json;
  std::optional<std::string> config, special_tokens_map;
};

Result<TokenizerFiles> read_files(const std::string& dir) {
  FOVEA_TRY(config, read_optional(dir + "/tokenizer_config.json"));
  FOVEA_TRY(special_tokens_map, read_optional(dir + "/special_tokens_map.json"));
  FOVEA_TRY(json, read_optional(dir + "/tokenizer.json"));
  if (!json) {
    const auto in_dir = [&](const Error& error) { return Error{error.code, dir + "/" + error.message}; };
    auto parsed = parse_tokenizer_config(config.value_or(""), special_tokens_map.value_or(""));
    if (!parsed) return in_dir(parsed.error());
    FOVEA_TRY(vocab_txt, read_optional(dir + "/vocab.txt"));
    FOVEA_TRY(vocab_json, read_optional(dir + "/vocab.json"));
    FOVEA_TRY(merges_txt, read_optional(dir + "/merges.txt"));
    const LegacyFiles files{std::move(vocab_txt), std::move(vocab_json), std::move(merges_txt),
                            std::ifstream(dir + "/tokenizer.model").good()};
    auto converted = tokenizer_json_from(files, *parsed);
    if (!converted) return in_dir(converted.error());
    json = *std::move(converted);
  }
  return TokenizerFiles{*std::move(json), std::move(config), std::move(special_tokens_map)};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& dir) {
  FOVEA_TRY(files, read_files(dir));
  auto tokenizer = parse(files.json, files.config.value_or(""), files.special_tokens_map.value_or(""));
  if (!tokenizer) return Error{tokenizer.error().code, dir + "/" + tokenizer.error().message};
  return tokenizer;
}

Result<std::optional<text::PairFrame>> text::load_pair_frame(const std::string& dir) {
  FOVEA_TRY(files, read_files(dir));
  FOVEA_TRY(root, parse_json(files.json, "tokenizer.json"));
  auto frame = parse_pair_frame(root.find("post_processor"));
  if (!frame) return Error{frame.error().code, dir + "/" + frame.error().message};
  return frame;
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::parse(std::string_view tokenizer_json,
                                                    std::string_view tokenizer_config_json,
                                                    std::string_view special_tokens_map_json) {
  FOVEA_TRY(root, parse_json(tokenizer_json, "tokenizer.json"));
  if (!root.object()) return invalid("tokenizer.json must hold an object");
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer());
  Impl& impl = *tokenizer->impl_;
  FOVEA_TRY(config, parse_tokenizer_config(tokenizer_config_json, special_tokens_map_json));
  impl.config = std::move(config);
  FOVEA_TRY(model, parse_token_model(root.find("model")));
  impl.model = std::move(model);
  FOVEA_TRY(normalizer, parse_normalizer(root.find("normalizer")));
  impl.normalizer = std::move(normalizer);
  FOVEA_TRY(pre_tokenizer, parse_pre_tokenizer(root.find("pre_tokenizer")));
  impl.pre_tokenizer = std::move(pre_tokenizer);
  const int byte_level_stages = impl.pre_tokenizer ? impl.pre_tokenizer->byte_level_stages() : 0;
  if (byte_level_stages > 1) {
    return unsupported("tokenizer.json: pre_tokenizer has " + std::to_string(byte_level_stages) +
                       " ByteLevel stages; at most one is supported");
  }
  // Where blanks are part of the tokens (BPE), an extra blank is text; so transformers cleans up only after
  // the other models.
  const Json* model_type = root.find("model")->find("type");
  const bool is_bpe = root.find("model")->find("merges") != nullptr ||
                      (model_type && model_type->string() && *model_type->string() == "BPE");
  FOVEA_TRY(decoder,
            TokenDecoder::parse(root.find("decoder"), impl.config.clean_up_tokenization_spaces && !is_bpe));
  impl.decoder = std::move(decoder);
  const Json* processor = root.find("post_processor");
  FOVEA_TRY(post_processor, parse_post_processor(processor));
  impl.post_processor = std::move(post_processor);
  FOVEA_RETURN_IF_ERROR(impl.add_all_tokens(root.find("added_tokens")));
  FOVEA_RETURN_IF_ERROR(impl.add_special_tokens());
  FOVEA_RETURN_IF_ERROR(impl.apply_config_flags(processor && !processor->is_null()));
  FOVEA_RETURN_IF_ERROR(impl.check_post_processor());
  if (impl.decoder.is_byte_level()) warn_about_missing_bytes(impl.model->vocabulary());
  impl.fill_byte_table();
  impl.find_longest_id();
  return tokenizer;
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = to_valid_utf8(text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  ids.reserve(std::min(text.size() / 3, options.most_ids) + 8);
  if (options.add_special_tokens) ids = impl_->post_processor.prefix;
  std::vector<AddedTokenFinder::Section> sections;
  impl_->raw_finder.split(text, options.parse_special_tokens, sections);
  for (const auto& section : sections) {
    if (ids.size() > options.most_ids) break;
    if (section.token) {
      ids.push_back(section.token->id);
    } else {
      FOVEA_RETURN_IF_ERROR(impl_->encode_section(text.substr(section.span.begin, section.span.size()),
                                                  section.span.begin == 0, options, ids));
    }
  }
  if (options.add_special_tokens) {
    const std::vector<int32_t>& suffix = impl_->post_processor.suffix;
    ids.insert(ids.end(), suffix.begin(), suffix.end());
  }
  return ids;
}

size_t Tokenizer::least_ids(std::string_view text) const {
  if (impl_->longest_id == 0) return 0;
  size_t bytes = text.size();
  if (impl_->strips) {
    for (std::string_view rest = text; !rest.empty();) {
      const Utf8Char c = decode_utf8(rest);
      if (is_white_space(c.code_point)) bytes -= c.length;
      rest.remove_prefix(c.length);
    }
  }
  return bytes / impl_->longest_id;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  Stream stream(*this, skip_special_tokens);
  std::string out;
  for (const int32_t id : ids)
    stream.push(id, out);
  stream.finish(out);
  return out;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const size_t begin = impl_->byte_offsets[static_cast<size_t>(id)];
  const size_t end = impl_->byte_offsets[static_cast<size_t>(id) + 1];
  return std::string_view(impl_->bytes).substr(begin, end - begin);
}

int Tokenizer::vocab_size() const {
  return static_cast<int>(impl_->added_by_id.size());
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  return impl_->find(token);
}

std::string_view Tokenizer::id_to_token(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const AddedToken* added = impl_->added_by_id[static_cast<size_t>(id)];
  return added ? std::string_view(added->content) : impl_->model->vocabulary().token(id);
}

bool Tokenizer::is_special(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return false;
  const AddedToken* added = impl_->added_by_id[static_cast<size_t>(id)];
  return added && added->special;
}

std::optional<int32_t> Tokenizer::bos_token_id() const {
  return impl_->special_id("bos_token");
}

std::optional<int32_t> Tokenizer::eos_token_id() const {
  return impl_->special_id("eos_token");
}

std::string_view Tokenizer::special_token(std::string_view name) const {
  const auto it = impl_->config.special_tokens.find(name);
  return it == impl_->config.special_tokens.end() ? std::string_view() : std::string_view(it->second);
}

struct Tokenizer::Stream::State {
  const Tokenizer* tokenizer;
  bool skip_special;
  TokenDecoder::Run run;
};

Tokenizer::Stream::Stream(const Tokenizer& tokenizer, bool skip_special_tokens,
                          std::span<const int32_t> context)
    : state_(new State{&tokenizer, skip_special_tokens, TokenDecoder::Run(tokenizer.impl_->decoder)}) {
  // The first ids decide whether the text has begun, the last ones may hold an incomplete character.
  constexpr size_t kEnd = 32;
  std::string known;
  for (size_t i = 0; i < context.size(); ++i) {
    if (i == kEnd && context.size() > 2 * kEnd) i = context.size() - kEnd;
    push(context[i], known);
    known.clear();
  }
  state_->run.drop_unfinished();  // an incomplete character of the context is not completed
}

Tokenizer::Stream::~Stream() = default;
Tokenizer::Stream::Stream(Stream&&) noexcept = default;
Tokenizer::Stream& Tokenizer::Stream::operator=(Stream&&) noexcept = default;

void Tokenizer::Stream::push(int32_t id, std::string& out) {
  const Impl& impl = *state_->tokenizer->impl_;
  if (id < 0 || id >= state_->tokenizer->vocab_size()) return;
  if (const AddedToken* added = impl.added_by_id[static_cast<size_t>(id)]) {
    if (!added->special || !state_->skip_special) state_->run.push(added->content, true, out);
  } else if (impl.model->vocabulary().has(id)) {
    state_->run.push(impl.model->vocabulary().token(id), false, out);
  }
}

void Tokenizer::Stream::finish(std::string& out) {
  state_->run.finish(out);
}

}  // namespace fovea
