#include "text/token_decoder.h"

#include <algorithm>

#include "fovea/result.h"
#include "text/byte_level.h"
#include "text/metaspace.h"
#include "text/normalizer.h"
#include "text/pattern.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

// Real stages replace one character by another; ten stages that each double the text would exhaust memory.
constexpr size_t kMaxGrowth = 256;
constexpr size_t kMaxStages = 64;  // each calls the next; real chains have five

static_assert(kMaxGrowth >= kMaxInsertedBytes, "one stage alone is allowed");

// The bytes of a byte-level token; a spelling with characters outside the alphabet stands for itself.
std::string byte_level_bytes(std::string_view token, bool is_added) {
  if (is_added) return std::string(token);
  return spelled_bytes(token).value_or(std::string(token));
}

Result<size_t> count_field(const Json& spec, std::string_view key) {
  const Json* value = spec.find(key);
  if (!value || value->is_null()) return size_t{0};
  if (!value->integer() || *value->integer() < 0) {
    return invalid("tokenizer.json: decoder Strip." + std::string(key) + " is " + value->describe() +
                   "; a number of characters is needed");
  }
  return static_cast<size_t>(*value->integer());
}

}  // namespace

Status TokenDecoder::add_stage(const Json& spec, const std::string& type) {
  if (stages_.size() == kMaxStages) {
    return invalid("tokenizer.json: decoder has more than " + std::to_string(kMaxStages) +
                   " stages; remove those that do nothing");
  }
  if (type == "ByteLevel") {
    if (!stages_.empty())
      return unsupported("tokenizer.json: decoder ByteLevel must be the first of a Sequence");
    byte_level_ = whole_text_ = true;
    stages_.push_back(make_utf8_stage());
  } else if (type == "Fuse") {
    whole_text_ = true;
    stages_.push_back(make_fuse_stage());
  } else if (type == "Metaspace") {
    FOVEA_TRY(settings, parse_metaspace_settings(spec));
    const bool drop_first = settings.prepend != Metaspace::Prepend::never;
    stages_.push_back(make_metaspace_stage(std::move(settings.replacement), drop_first));
  } else if (type == "Replace") {
    FOVEA_TRY(pattern, Pattern::parse(spec.find("pattern"), "tokenizer.json: decoder Replace.pattern"));
    if (!pattern.literal()) {
      return unsupported("tokenizer.json: decoder Replace with a Regex is not supported; a String is");
    }
    FOVEA_TRY(content, string_field(spec, "tokenizer.json: decoder Replace", "content", ""));
    if (const size_t bytes = std::max(content.size(), pattern.literal()->size()); bytes > kMaxInsertedBytes) {
      return invalid("tokenizer.json: decoder Replace has a text of " + std::to_string(bytes) +
                     " bytes; at most " + std::to_string(kMaxInsertedBytes) + " are allowed");
    }
    if (const size_t bytes = pattern.literal()->size(); bytes > 0) {
      growth_ *= std::max<size_t>(1, (content.size() + bytes - 1) / bytes);
      if (growth_ > kMaxGrowth) {
        return invalid("tokenizer.json: the decoder's Replace stages make a text up to " +
                       std::to_string(growth_) + " times longer; at most " + std::to_string(kMaxGrowth) +
                       " times is allowed, since stages multiply each other");
      }
      stages_.push_back(make_replace_stage(*pattern.literal(), std::move(content)));
    }
  } else if (type == "Strip") {
    FOVEA_TRY(character, string_field(spec, "tokenizer.json: decoder Strip", "content", " "));
    if (count_code_points(character) != 1) {
      return invalid("tokenizer.json: decoder Strip.content is " + Json(character).describe() +
                     "; one character is needed");
    }
    FOVEA_TRY(start, count_field(spec, "start"));
    FOVEA_TRY(stop, count_field(spec, "stop"));
    stages_.push_back(make_strip_stage(std::move(character), start, stop, whole_text_));
  } else if (type == "ByteFallback" || type == "WordPiece" || type == "BPEDecoder") {
    if (whole_text_)
      return unsupported("tokenizer.json: decoder " + type + " can't follow Fuse or ByteLevel");
    if (type == "ByteFallback") {
      stages_.push_back(make_byte_fallback_stage());
    } else if (type == "WordPiece") {
      FOVEA_TRY(prefix, string_field(spec, "tokenizer.json: decoder WordPiece", "prefix", "##"));
      FOVEA_TRY(clean_up, bool_field(spec, "tokenizer.json: decoder WordPiece", "cleanup", true));
      stages_.push_back(make_word_piece_stage(std::move(prefix), clean_up));
    } else {
      FOVEA_TRY(suffix, string_field(spec, "tokenizer.json: decoder BPEDecoder", "suffix", "</w>"));
      if (suffix.empty()) return invalid("tokenizer.json: decoder BPEDecoder.suffix must not be empty");
      stages_.push_back(make_bpe_suffix_stage(std::move(suffix)));
    }
  } else {
    return unsupported("tokenizer.json: decoder " + Json(type).describe() +
                       " is not supported; supported: null, ByteLevel, Metaspace, WordPiece, BPEDecoder, "
                       "ByteFallback, Fuse, Strip, Replace, Sequence");
  }
  return {};
}

Status TokenDecoder::add(const Json& spec) {
  FOVEA_TRY(type, string_field(spec, "tokenizer.json: decoder", "type", ""));
  if (type != "Sequence") return add_stage(spec, type);
  const Json* list = spec.find("decoders");
  if (!list || !list->array()) return invalid("tokenizer.json: decoder.decoders must be a list");
  for (const Json& item : *list->array())
    FOVEA_RETURN_IF_ERROR(add(item));
  return {};
}

Result<TokenDecoder> TokenDecoder::parse(const Json* spec, bool clean_up) {
  TokenDecoder out;
  if (!spec || spec->is_null()) {
    out.stages_.push_back(make_join_stage());
  } else {
    FOVEA_RETURN_IF_ERROR(out.add(*spec));
  }
  if (clean_up) {
    out.stages_.push_back(make_fuse_stage());
    for (const CleanUpRule& rule : kTextCleanUp)
      out.stages_.push_back(make_replace_stage(std::string(rule.pattern), std::string(rule.content)));
  }
  return out;
}

std::string TokenDecoder::token_bytes(std::string_view token, bool is_added) const {
  std::string bytes = byte_level_ ? byte_level_bytes(token, is_added) : std::string(token);
  for (const auto& stage : stages_)
    bytes = stage->middle(std::move(bytes));
  return bytes;
}

// The end of a chain: appends text to the string of the current call.
class TokenDecoder::Run::Output final : public DecoderStage {
 public:
  std::unique_ptr<DecoderStage> clone() const override { return std::make_unique<Output>(); }
  void part(std::string_view text) override { *out_ += text; }
  void end_piece() override {}
  void finish() override {}
  void drop_unfinished() override {}
  std::string middle(std::string piece) const override { return piece; }
  void write_to(std::string& out) { out_ = &out; }

 private:
  std::string* out_ = nullptr;
};

TokenDecoder::Run::Run(const TokenDecoder& decoder) : byte_level_(decoder.byte_level_) {
  for (const auto& stage : decoder.stages_)
    stages_.push_back(stage->clone());
  stages_.push_back(std::make_unique<Output>());
  for (size_t i = 0; i + 1 < stages_.size(); ++i)
    stages_[i]->set_next(stages_[i + 1].get());
}

void TokenDecoder::Run::push(std::string_view token, bool is_added, std::string& out) {
  static_cast<Output&>(*stages_.back()).write_to(out);
  if (byte_level_) {
    stages_.front()->part(byte_level_bytes(token, is_added));
  } else {
    stages_.front()->part(token);
  }
  stages_.front()->end_piece();
}

void TokenDecoder::Run::finish(std::string& out) {
  static_cast<Output&>(*stages_.back()).write_to(out);
  stages_.front()->finish();
}

}  // namespace fovea::text
