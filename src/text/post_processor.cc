#include "text/post_processor.h"

#include "fovea/result.h"
#include "text/vocabulary.h"

namespace fovea::text {
namespace {

Result<std::vector<int32_t>> special_ids(const Json& spec, const std::string& name) {
  const std::string path = "tokenizer.json: TemplateProcessing.special_tokens." + Json(name).describe();
  const Json* table = spec.find("special_tokens");
  const Json* entry = table ? table->find(name) : nullptr;
  const Json* ids = entry ? entry->find("ids") : nullptr;
  if (!ids || !ids->array()) return invalid(path + ".ids must be a list of token ids");
  std::vector<int32_t> out;
  for (const Json& value : *ids->array()) {
    FOVEA_TRY(id, parse_token_id(value, path + ".ids"));
    out.push_back(id);
  }
  return out;
}

struct Template {
  PostProcessor wrap;  // what stands before the first text and after it
  int texts_a = 0, texts_b = 0;
};

Result<Template> parse_pieces(const Json& spec, const std::string& key) {
  const std::string path = "tokenizer.json: TemplateProcessing." + key;
  const Json* pieces = spec.find(key);
  if (!pieces || !pieces->array()) return invalid(path + " must be a list");
  Template out;
  for (const Json& item : *pieces->array()) {
    const Json* special = item.find("SpecialToken");
    const Json* special_name = special ? special->find("id") : nullptr;
    const Json* text = item.find("Sequence");
    const Json* text_name = text ? text->find("id") : nullptr;
    if (special_name && special_name->string()) {
      FOVEA_TRY(ids, special_ids(spec, *special_name->string()));
      std::vector<int32_t>& side = out.texts_a + out.texts_b == 0 ? out.wrap.prefix : out.wrap.suffix;
      side.insert(side.end(), ids.begin(), ids.end());
    } else if (text_name && text_name->string() && *text_name->string() == "A") {
      ++out.texts_a;
    } else if (text_name && text_name->string() && *text_name->string() == "B") {
      ++out.texts_b;
    } else {
      return invalid(
          path + " holds " + item.describe() +
          "; {\"SpecialToken\": {\"id\"}} and {\"Sequence\": {\"id\": \"A\" or \"B\"}} are allowed");
    }
  }
  return out;
}

Status parse_template(const Json& spec, PostProcessor& out) {
  FOVEA_TRY(single, parse_pieces(spec, "single"));
  if (single.texts_a != 1 || single.texts_b != 0) {
    return unsupported("tokenizer.json: TemplateProcessing.single holds text A " +
                       std::to_string(single.texts_a) + " times and text B " +
                       std::to_string(single.texts_b) + " times; A once and no B is supported");
  }
  if (const Json* pair = spec.find("pair"); pair && !pair->is_null()) {
    FOVEA_RETURN_IF_ERROR(parse_pieces(spec, "pair"));
  }
  out.prefix.insert(out.prefix.begin(), single.wrap.prefix.begin(), single.wrap.prefix.end());
  out.suffix.insert(out.suffix.end(), single.wrap.suffix.begin(), single.wrap.suffix.end());
  return {};
}

// The id of a ["token", id] pair.
Result<int32_t> parse_token_pair(const Json& spec, const std::string& path) {
  const Json::Array* pair = spec.array();
  if (!pair || pair->size() != 2 || !(*pair)[0].string()) {
    return invalid(path + " is " + spec.describe() + "; [token, id] is needed");
  }
  return parse_token_id((*pair)[1], path + "[1]");
}

// BertProcessing and RobertaProcessing: cls, text, sep.
Status parse_cls_and_sep(const Json& spec, const std::string& type, PostProcessor& out) {
  const Json* cls = spec.find("cls");
  const Json* sep = spec.find("sep");
  FOVEA_TRY(cls_id, parse_token_pair(cls ? *cls : Json(), "tokenizer.json: " + type + ".cls"));
  FOVEA_TRY(sep_id, parse_token_pair(sep ? *sep : Json(), "tokenizer.json: " + type + ".sep"));
  out.prefix.insert(out.prefix.begin(), cls_id);
  out.suffix.push_back(sep_id);
  return {};
}

Status add_stage(const Json& spec, PostProcessor& out) {
  FOVEA_TRY(type, string_field(spec, "tokenizer.json: post_processor", "type", ""));
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return parse_template(spec, out);
  if (type == "BertProcessing" || type == "RobertaProcessing") return parse_cls_and_sep(spec, type, out);
  if (type != "Sequence") {
    return unsupported("tokenizer.json: post_processor " + Json(type).describe() +
                       " is not supported; supported: null, ByteLevel, TemplateProcessing, BertProcessing, "
                       "RobertaProcessing, Sequence");
  }
  const Json* list = spec.find("processors");
  if (!list || !list->array()) return invalid("tokenizer.json: post_processor.processors must be a list");
  for (const Json& item : *list->array())
    FOVEA_RETURN_IF_ERROR(add_stage(item, out));
  return {};
}

Result<int32_t> type_of(const Json& piece) {
  const Json* type = piece.find("type_id");
  if (type == nullptr) return 0;
  const int64_t* value = type->integer();
  if (value == nullptr || *value < 0 || *value > 1 << 16)
    return invalid("tokenizer.json: TemplateProcessing.pair has the type_id " + type->describe() +
                   "; it must be a small integer");
  return static_cast<int32_t>(*value);
}

Result<PairFrame> parse_pair_template(const Json& spec, const Json& pieces) {
  PairFrame out;
  int texts = 0;
  for (const Json& item : *pieces.array()) {  // parse_pieces() has checked their forms
    if (const Json* special = item.find("SpecialToken")) {
      FOVEA_TRY(ids, special_ids(spec, *special->find("id")->string()));
      FOVEA_TRY(type, type_of(*special));
      auto& side = texts == 0 ? out.before : texts == 1 ? out.between : out.after;
      for (const int32_t id : ids)
        side.push_back({id, type});
      continue;
    }
    const Json& text = *item.find("Sequence");
    FOVEA_TRY(type, type_of(text));
    if ((*text.find("id")->string() == "A") != (texts == 0) || texts > 1)
      return unsupported("tokenizer.json: TemplateProcessing.pair must hold text A once, and then B once");
    (texts == 0 ? out.first_type : out.second_type) = type;
    ++texts;
  }
  if (texts != 2)
    return unsupported("tokenizer.json: TemplateProcessing.pair must hold text A once, and then B once");
  return out;
}

}  // namespace

Result<std::optional<PairFrame>> parse_pair_frame(const Json* spec) {
  if (!spec || spec->is_null()) return std::optional<PairFrame>();
  FOVEA_TRY(type, string_field(*spec, "tokenizer.json: post_processor", "type", ""));
  if (type == "TemplateProcessing") {
    const Json* pieces = spec->find("pair");
    if (!pieces || pieces->is_null()) return std::optional<PairFrame>();
    FOVEA_RETURN_IF_ERROR(parse_pieces(*spec, "pair"));
    FOVEA_TRY(frame, parse_pair_template(*spec, *pieces));
    return std::optional(std::move(frame));
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    PostProcessor single;
    FOVEA_RETURN_IF_ERROR(parse_cls_and_sep(*spec, type, single));
    const int32_t cls = single.prefix.front(), sep = single.suffix.front();
    if (type == "RobertaProcessing")
      return std::optional(PairFrame{{{cls, 0}}, {{sep, 0}, {sep, 0}}, {{sep, 0}}});
    return std::optional(PairFrame{{{cls, 0}}, {{sep, 0}}, {{sep, 1}}, 0, 1});
  }
  const Json* list = spec->find("processors");
  if (type != "Sequence" || !list || !list->array()) return std::optional<PairFrame>();
  std::optional<PairFrame> out;
  for (const Json& item : *list->array()) {
    FOVEA_TRY(frame, parse_pair_frame(&item));
    if (frame) out = std::move(frame);
  }
  return out;
}

Result<PostProcessor> parse_post_processor(const Json* spec) {
  PostProcessor out;
  if (!spec || spec->is_null()) return out;
  FOVEA_RETURN_IF_ERROR(add_stage(*spec, out));
  return out;
}

}  // namespace fovea::text
