#include "server/openai/tool_fields.h"

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

/// The types that a schema names, joined by blanks.
std::string types_of(const Json& schema, int depth = 0) {
  std::string types;
  const auto add = [&](const std::string& name) { types += (types.empty() ? "" : " ") + name; };
  if (!schema.object() || depth > 8) return types;
  if (const Json* type = schema.find("type")) {
    if (type->string()) add(*type->string());
    if (type->array())
      for (const Json& each : *type->array())
        if (each.string()) add(*each.string());
  }
  for (const std::string_view key : {"anyOf", "oneOf"})
    if (const Json* list = schema.find(key); list && list->array())
      for (const Json& each : *list->array())
        if (const std::string inner = types_of(each, depth + 1); !inner.empty()) add(inner);
  if (const Json* values = schema.find("enum"); types.empty() && values && values->array())
    for (const Json& each : *values->array())
      add(each.string() ? "string" : "number");
  return types;
}

class Reader {
 public:
  Reader(Fields& fields, ToolRequest& out) : fields_(fields), out_(out) {}

  void read() {
    const Json* tools = fields_.find("tools");
    const Json* choice = fields_.find("tool_choice");
    fields_.read("parallel_tool_calls", out_.parallel);
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
      if (!type || !type->string() || *type->string() != "function")
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
          out_.types[*name->string()][key] = types_of(value);
      tools_.push_back({*name->string(), std::move(schema)});
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
    const Json* function = choice.object() ? choice.find("function") : nullptr;
    const Json* name = function && function->object() ? function->find("name") : nullptr;
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

  /// References inside a tool's schema begin at its own root: it gets an $id, against which they are
  /// resolved.
  void make_schemas() {
    if (out_.choice != ToolRequest::Choice::required) return;
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
  std::vector<Tool> tools_;
};

}  // namespace

void read_tools(Fields& fields, ToolRequest& out) {
  Reader(fields, out).read();
}

}  // namespace fovea::openai
