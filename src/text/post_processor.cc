#include "text/post_processor.h"

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

Status parse_template(const Json& spec, PostProcessor& out) {
  const Json* single = spec.find("single");
  if (!single || !single->array()) return invalid("tokenizer.json: TemplateProcessing.single must be a list");
  PostProcessor wrap;
  int sequences = 0;
  for (const Json& item : *single->array()) {
    const Json* special = item.find("SpecialToken");
    const Json* name = special ? special->find("id") : nullptr;
    if (name && name->string()) {
      FOVEA_TRY(ids, special_ids(spec, *name->string()));
      std::vector<int32_t>& side = sequences == 0 ? wrap.prefix : wrap.suffix;
      side.insert(side.end(), ids.begin(), ids.end());
    } else if (item.find("Sequence")) {
      ++sequences;
    } else {
      return invalid("tokenizer.json: TemplateProcessing.single holds " + item.describe() +
                     "; SpecialToken and Sequence are allowed");
    }
  }
  if (sequences != 1) {
    return unsupported("tokenizer.json: TemplateProcessing.single holds " + std::to_string(sequences) +
                       " sequences; exactly one is supported");
  }
  out.prefix.insert(out.prefix.begin(), wrap.prefix.begin(), wrap.prefix.end());
  out.suffix.insert(out.suffix.end(), wrap.suffix.begin(), wrap.suffix.end());
  return {};
}

Status add_stage(const Json& spec, PostProcessor& out) {
  FOVEA_TRY(type, string_field(spec, "tokenizer.json: post_processor", "type", ""));
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return parse_template(spec, out);
  if (type != "Sequence") {
    return unsupported("tokenizer.json: post_processor " + Json(type).describe() +
                       " is not supported; supported: null, ByteLevel, TemplateProcessing, Sequence");
  }
  const Json* list = spec.find("processors");
  if (!list || !list->array()) return invalid("tokenizer.json: post_processor.processors must be a list");
  for (const Json& item : *list->array())
    FOVEA_RETURN_IF_ERROR(add_stage(item, out));
  return {};
}

}  // namespace

Result<PostProcessor> parse_post_processor(const Json* spec) {
  PostProcessor out;
  if (!spec || spec->is_null()) return out;
  FOVEA_RETURN_IF_ERROR(add_stage(*spec, out));
  return out;
}

}  // namespace fovea::text
