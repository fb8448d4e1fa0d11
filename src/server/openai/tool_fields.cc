#include "server/openai/tool_fields.h"

#include <algorithm>

#include "fovea/result.h"
#include "server/openai/json_writer.h"

namespace fovea::openai {
namespace {

using text::Json;

constexpr size_t kMostTools = 1024;

Json object(std::initializer_list<std::pair<std::string, Json>> members) {
  return Json(Json::Object(members));
}

Json string(std::string text) {
  return Json(std::move(text));
}

/// What a reference inside `root` leads to; null = not there.
const Json* referred(const Json& root, std::string_view reference) {
  if (!reference.starts_with("#")) return nullptr;
  reference.remove_prefix(1);
  const Json* at = &root;
  while (at && !reference.empty()) {
    if (reference[0] != '/') return nullptr;
    reference.remove_prefix(1);
    std::string key;
    for (; !reference.empty() && reference[0] != '/'; reference.remove_prefix(1)) {
      const bool escaped = reference[0] == '~' && reference.size() > 1;
      if (escaped) reference.remove_prefix(1);
      key += escaped ? (reference[0] == '1' ? '/' : '~') : reference[0];
    }
    at = at->object() ? at->find(key) : nullptr;
  }
  return at;
}

std::string type_of(const Json& value) {
  if (value.string()) return "string";
  if (value.boolean()) return "boolean";
  if (value.array()) return "array";
  if (value.object()) return "object";
  return value.is_null() ? "null" : "number";
}

/// The types that a schema inside `root` allows, joined by blanks; "" = not known.
std::string types_of(const Json& schema, const Json& root, int depth = 0) {
  std::string types;
  const auto add = [&](const std::string& names) {
    for (size_t at = 0; at < names.size();) {
      const size_t end = std::min(names.find(' ', at), names.size());
      const std::string name = names.substr(at, end - at);
      if ((" " + types + " ").find(" " + name + " ") == std::string::npos)
        types += (types.empty() ? "" : " ") + name;
      at = end + 1;
    }
  };
  if (!schema.object() || depth > 8) return types;
  if (const Json* type = schema.find("type")) {
    if (type->string()) add(*type->string());
    if (type->array())
      for (const Json& each : *type->array())
        if (each.string()) add(*each.string());
  }
  if (const Json* nullable = schema.find("nullable"); nullable && nullable->boolean() && *nullable->boolean())
    add("null");
  if (const Json* reference = schema.find("$ref"); reference && reference->string())
    if (const Json* other = referred(root, *reference->string())) add(types_of(*other, root, depth + 1));
  for (const std::string_view key : {"anyOf", "oneOf", "allOf"})
    if (const Json* list = schema.find(key); list && list->array())
      for (const Json& each : *list->array())
        add(types_of(each, root, depth + 1));
  if (!types.empty()) return types;
  if (const Json* value = schema.find("const")) add(type_of(*value));
  if (const Json* values = schema.find("enum"); values && values->array())
    for (const Json& each : *values->array())
      add(type_of(each));
  if (schema.find("properties")) add("object");
  if (schema.find("items") || schema.find("prefixItems")) add("array");
  return types;
}

class Reader {
 public:
  Reader(Fields& fields, ToolRequest& out) : fields_(fields), out_(out) {}

  void read() {
    const Json* tools = fields_.find("tools");
    const Json* choice = fields_.find("tool_choice");
    fields_.read("parallel_tool_calls", out_.parallel);
    given_ = tools;
    const bool any = tools && !(tools->array() && tools->array()->empty());
    if (any) read_list(*tools);
    if (fields_.error()) return;
    if (any) out_.choice = ToolRequest::Choice::automatic;
    if (choice) read_choice(*choice, any);
    if (any && !fields_.error()) make_schemas();
  }

 private:
  struct Tool {
    std::string name;
    Json parameters;
    size_t index;
  };

  void read_list(const Json& tools) {
    if (!tools.array() || tools.array()->size() > kMostTools) {
      fields_.refuse("tools", tools, "a list of at most 1024 tools");
      return;
    }
    for (size_t i = 0; i < tools.array()->size(); ++i) {
      const std::string path = "tools[" + std::to_string(i) + "]";
      const Json& tool = (*tools.array())[i];
      const Json* type = tool.object() ? tool.find("type") : nullptr;
      const Json* function = tool.object() ? tool.find("function") : nullptr;
      // vLLM's default is "function".
      if (!tool.object() || (type ? !type->string() || *type->string() != "function" : !function))
        return fields_.fail("tools", path + R"(.type must be "function"; this server runs no other tools)");
      const Json* name = function && function->object() ? function->find("name") : nullptr;
      if (!name || !name->string() || name->string()->empty())
        return fields_.fail("tools", path + ".function must be an object with a name");
      const Json* parameters = function->find("parameters");
      if (parameters && !parameters->is_null() && !parameters->object())
        return fields_.fail("tools", path + ".function.parameters must be a JSON schema");
      Json schema = parameters && parameters->object() && !parameters->object()->empty()
                        ? *parameters
                        : object({{"type", string("object")}});
      if (const Json* properties = schema.find("properties"); properties && properties->object())
        for (const auto& [key, value] : *properties->object())
          out_.types[*name->string()][key] = types_of(value, schema);
      tools_.push_back({*name->string(), std::move(schema), i});
    }
    out_.tools = to_text(tools);
  }

  void read_choice(const Json& choice, bool any) {
    using Choice = ToolRequest::Choice;
    if (const std::string* word = choice.string()) {
      if (*word != "none" && *word != "auto" && *word != "required")
        return fields_.refuse("tool_choice", choice, R"("none", "auto", "required" or a named function)");
      if (*word == "required" && !any)
        return fields_.fail("tool_choice", "tool_choice is \"required\", but tools is missing");
      if (any)
        out_.choice = *word == "none" ? Choice::none : *word == "auto" ? Choice::automatic : Choice::required;
      return;
    }
    if (const Json* type = choice.object() ? choice.find("type") : nullptr;
        type && type->string() && *type->string() == "allowed_tools")
      return read_allowed(choice);
    const Json* name = name_of(choice);
    if (!name || !name->string())
      return fields_.refuse(
          "tool_choice", choice,
          R"("none", "auto", "required" or {"type": "function", "function": {"name": "..."}})");
    out_.choice = Choice::named;
    out_.named = *name->string();
    for (const Tool& tool : tools_)
      if (tool.name == out_.named) {
        out_.arguments_schema = to_text(tool.parameters);
        return;
      }
    fields_.fail("tool_choice", "tool_choice names " + shown(*name) + ", which is not one of the tools");
  }

  static const Json* name_of(const Json& choice) {
    const Json* function = choice.object() ? choice.find("function") : nullptr;
    return function && function->object() ? function->find("name") : nullptr;
  }

  /// OpenAI's {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}: the others are left out.
  void read_allowed(const Json& choice) {
    const Json* allowed = choice.find("allowed_tools");
    const Json* mode = allowed && allowed->object() ? allowed->find("mode") : nullptr;
    const Json* list = allowed && allowed->object() ? allowed->find("tools") : nullptr;
    const bool required = mode && mode->string() && *mode->string() == "required";
    if (!list || !list->array() || list->array()->empty() ||
        (!required && !(mode && mode->string() && *mode->string() == "auto")))
      return fields_.refuse(
          "tool_choice", choice,
          R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [...]}})");
    std::vector<bool> kept(tools_.size());
    for (const Json& each : *list->array()) {
      const Json* name = name_of(each);
      size_t found = 0;
      for (size_t i = 0; i < tools_.size(); ++i)
        if (name && name->string() && tools_[i].name == *name->string()) {
          kept[i] = true;
          ++found;
        }
      if (found == 0)
        return fields_.fail("tool_choice", "tool_choice allows " + shown(name ? *name : each) +
                                               ", which is not one of the tools");
    }
    Json::Array left;
    for (size_t i = tools_.size(); i-- > 0;)
      if (!kept[i]) tools_.erase(tools_.begin() + static_cast<ptrdiff_t>(i));
    for (const Tool& tool : tools_)
      left.push_back((*given_->array())[tool.index]);
    out_.tools = to_text(Json(std::move(left)));
    out_.choice = required ? ToolRequest::Choice::required : ToolRequest::Choice::automatic;
  }

  /// References inside a tool's schema begin at its own root: it gets an $id, against which they are
  /// resolved.
  void make_schemas() {
    const bool required = out_.choice == ToolRequest::Choice::required;
    for (const Tool& tool : tools_)
      if (required || (out_.choice == ToolRequest::Choice::named && tool.name == out_.named))
        out_.forced.push_back({tool.name, to_text(tool.parameters), tool.index});
    if (!required) return;
    Json::Array each;
    for (size_t i = 0; i < tools_.size(); ++i) {
      Json parameters = tools_[i].parameters;
      if (!parameters.find("$id"))
        parameters.object()->emplace_back("$id", string("urn:tool:" + std::to_string(i)));
      Json call = object({{"type", string("object")},
                          {"properties", object({{"name", object({{"const", string(tools_[i].name)}})},
                                                 {"parameters", std::move(parameters)}})},
                          {"required", Json(Json::Array{string("name"), string("parameters")})},
                          {"additionalProperties", Json(false)}});
      each.push_back(std::move(call));
    }
    Json::Object list{{"type", string("array")},
                      {"minItems", Json(int64_t{1})},
                      {"items", object({{"anyOf", Json(std::move(each))}})}};
    if (!out_.parallel) list.emplace_back("maxItems", Json(int64_t{1}));
    out_.calls_schema = to_text(Json(std::move(list)));
  }

  Fields& fields_;
  ToolRequest& out_;
  const Json* given_ = nullptr;
  std::vector<Tool> tools_;
};

}  // namespace

void read_tools(Fields& fields, ToolRequest& out) {
  Reader(fields, out).read();
}

}  // namespace fovea::openai
