#include "server/openai/constraint_fields.h"

#include "server/openai/json_writer.h"

namespace fovea::openai {
namespace {

using text::Json;
using Kind = OutputConstraint::Kind;

constexpr size_t kMaxChoices = 100'000;
constexpr std::string_view kFields[] = {"response_format",
                                        "structured_outputs",
                                        "guided_json",
                                        "guided_regex",
                                        "guided_choice",
                                        "guided_grammar",
                                        "guided_json_object",
                                        "json_schema",
                                        "regex",
                                        "ebnf",
                                        "grammar",
                                        "structural_tag",
                                        "guided_whitespace_pattern"};

class Reader {
 public:
  explicit Reader(Fields& fields) : fields_(fields) {}

  std::shared_ptr<const OutputConstraint> read() {
    read_format();
    read_structured_outputs();
    json("guided_json", fields_);
    string("guided_regex", Kind::regex, fields_);
    choices("guided_choice", fields_);
    string("guided_grammar", Kind::grammar, fields_);
    bool object = false;
    if (fields_.read("guided_json_object", object) && object)
      begin(fields_, "guided_json_object", Kind::json_object);
    json("json_schema", fields_);
    string("regex", Kind::regex, fields_);
    string("ebnf", Kind::grammar, fields_);
    string("grammar", Kind::grammar, fields_);
    tag("structural_tag", fields_);
    std::string white_space;
    const bool has_white_space = fields_.read("guided_whitespace_pattern", white_space);
    if (!given_ || fields_.error()) return nullptr;
    if (has_white_space) out_.white_space = white_space;
    return std::make_shared<const OutputConstraint>(std::move(out_));
  }

 private:
  /// True if the field is the first that asks for a constraint.
  bool begin(Fields& fields, std::string_view key, Kind kind) {
    const std::string name = fields.path_of(key);
    if (given_) {
      fields.fail(key, name + " is given beside " + by_ + "; an answer has one form: give one of them");
      return false;
    }
    given_ = true;
    by_ = out_.name = name;
    out_.kind = kind;
    return true;
  }

  /// "" and [] ask for nothing.
  static bool is_off(const Json& value) {
    return (value.string() && value.string()->empty()) || (value.array() && value.array()->empty());
  }

  void json(std::string_view key, Fields& fields) {
    const Json* value = fields.find(key);
    if (!value) return;
    if (is_off(*value)) return;
    if (!value->object() && !value->string() && !value->boolean()) {
      fields.refuse(key, *value, "a JSON schema: an object, or its text");
      return;
    }
    if (begin(fields, key, Kind::json_schema))
      out_.text = value->string() ? *value->string() : to_text(*value);
  }

  void string(std::string_view key, Kind kind, Fields& fields) {
    std::string text;
    if (fields.read(key, text) && !text.empty() && begin(fields, key, kind)) out_.text = std::move(text);
  }

  void choices(std::string_view key, Fields& fields) {
    std::vector<std::string> list;
    if (fields.read_strings(key, list, kMaxChoices) && !list.empty() && begin(fields, key, Kind::choice))
      out_.choices = std::move(list);
  }

  void tag(std::string_view key, Fields& fields) {
    const Json* value = fields.find(key);
    if (!value) return;
    if (is_off(*value)) return;
    if (!value->object() && !value->string()) {
      fields.refuse(key, *value, "a structural tag: an object, or its text");
      return;
    }
    if (begin(fields, key, Kind::structural_tag))
      out_.text = value->string() ? *value->string() : to_text(*value);
  }

  void read_format() {
    const Json* value = fields_.find("response_format");
    if (!value) return;
    Fields format(*value, "response_format");
    std::string type;
    if (!format.read("type", type) && !format.error())
      format.fail("type",
                  "response_format.type is missing; it must be \"text\", \"json_object\" or \"json_schema\"");
    const Json* schema = format.find("schema");  // llama.cpp, beside json_object
    const Json* named = format.find("json_schema");
    if (format.error()) {
      fields_.join(format);
      return;
    }
    if (type == "json_schema" && (named || !schema)) {
      read_named_schema(named, format);
    } else if (schema && (type == "json_object" || type == "json_schema")) {
      json("schema", format);
    } else if (type == "json_object") {
      begin(format, "type", Kind::json_object);
    } else if (type == "structural_tag") {  // the rest of the object is the tag
      if (begin(format, "type", Kind::structural_tag)) out_.text = to_text(*value);
      return;
    } else if (type != "text") {
      fields_.fail("response_format",
                   "response_format.type is " + shown(Json(type)) +
                       "; it must be \"text\", \"json_object\", \"json_schema\" or \"structural_tag\"");
      return;
    }
    format.close();
    fields_.join(format);
  }

  void read_named_schema(const Json* named, Fields& format) {
    if (!named) {
      format.fail("json_schema",
                  "response_format.json_schema is missing; it must be an object with a schema");
      return;
    }
    Fields inner(*named, "response_format.json_schema");
    std::string unused;
    inner.read("name", unused);
    inner.read("description", unused);
    bool strict = false;
    inner.read("strict", strict);
    if (!inner.find("schema") && !inner.error())
      inner.fail("schema", "response_format.json_schema.schema is missing; it must be a JSON schema");
    json("schema", inner);
    out_.strict = strict;
    inner.close();
    format.join(inner);
  }

  void read_structured_outputs() {
    const Json* value = fields_.find("structured_outputs");
    if (!value) return;
    Fields options(*value, "structured_outputs");
    json("json", options);
    string("regex", Kind::regex, options);
    choices("choice", options);
    choices("choices", options);
    string("grammar", Kind::grammar, options);
    tag("structural_tag", options);
    bool object = false;
    if (options.read("json_object", object) && object) begin(options, "json_object", Kind::json_object);
    std::string white_space;
    if (options.read("whitespace_pattern", white_space)) out_.white_space = white_space;
    bool compact = false, fallback = false;
    if (options.read("disable_any_whitespace", compact) && compact) out_.white_space = "";
    options.read("disable_additional_properties", out_.strict);
    options.read("disable_fallback", fallback);  // there is one implementation
    options.close();
    fields_.join(options);
    if (!given_ && !fields_.error())
      fields_.fail("structured_outputs",
                   "structured_outputs has no form; give json, regex, choice, grammar, json_object or "
                   "structural_tag");
  }

  Fields& fields_;
  OutputConstraint out_;
  bool given_ = false;
  std::string by_;
};

}  // namespace

std::shared_ptr<const OutputConstraint> read_constraint(Fields& fields) {
  return Reader(fields).read();
}

bool is_form_of_text(const OutputConstraint& constraint) {
  const std::string_view field = std::string_view(constraint.name).substr(0, constraint.name.find('.'));
  return field == "response_format" || field == "text" || field == "output_config" || field == "format";
}

std::span<const std::string_view> constraint_fields() {
  return kFields;
}

}  // namespace fovea::openai
