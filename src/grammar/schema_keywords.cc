// The keywords of one schema that concern one type, and values.
#include <algorithm>
#include <cmath>

#include "grammar/json_text.h"
#include "grammar/regex.h"
#include "grammar/schema_path.h"
#include "grammar/schema_reader.h"

namespace fovea::grammar {
namespace {

using text::Json;

constexpr std::string_view kInPlace[] = {"$ref", "allOf", "anyOf", "oneOf", "if", "not", "dependentSchemas"};

/// A count of a keyword; nullopt = it is absent.
Result<std::optional<uint32_t>> count_of(const Json& schema, const std::string& path, std::string_view key) {
  const Json* value = schema.find(key);
  if (!value) return std::optional<uint32_t>();
  const double number = value->integer() ? static_cast<double>(*value->integer())
                        : value->real()  ? *value->real()
                                         : -1;
  if (number < 0 || number != std::floor(number) || number > 1e9)
    return refused(path, key, "is " + value->describe() + "; it must be an integer from 0 to 1000000000");
  return std::optional(static_cast<uint32_t>(number));
}

}  // namespace

Status SchemaReader::read_types(const Json& schema, const std::string& path, Shape& shape) {
  const Json* type = schema.find("type");
  if (!type) return {};
  std::vector<std::string> names;
  if (type->string()) names.push_back(*type->string());
  if (const auto* list = type->array())
    for (const Json& name : *list)
      names.push_back(name.string() ? *name.string() : name.describe());
  if (const Json* nullable = schema.find("nullable"); nullable && nullable->boolean() && *nullable->boolean())
    names.push_back("null");  // OpenAPI 3.0
  Shape out;
  for (const std::string& name : names) {
    if (name == "null")
      out.null = true;
    else if (name == "boolean")
      out.yes = out.no = true;
    else if (name == "number")
      out.number = shape.number;
    else if (name == "integer")
      out.number = out.number == Expressions::kNoText ? any_integer(x_) : out.number;
    else if (name == "string")
      out.strings = shape.strings;
    else if (name == "array")
      out.arrays = shape.arrays;
    else if (name == "object")
      out.objects = shape.objects;
    else
      return refused(path, "type",
                     "has \"" + printable(name) +
                         "\"; types are null, boolean, integer, number, string, array and object");
  }
  if (names.empty()) return refused(path, "type", "is " + type->describe() + "; it must name types");
  shape = std::move(out);
  return {};
}

Status SchemaReader::read_numbers(const Json& schema, const std::string& path, Shape& shape) {
  const auto limit = [&](std::string_view key, bool from, bool exclusive) -> Status {
    const Json* value = schema.find(key);
    if (!value) return {};
    if (value->boolean()) {  // draft 4: exclusiveMinimum beside minimum
      return {};
    }
    const auto bound = Decimal::of(*value);
    if (!bound) return refused(path, key, "is " + value->describe() + "; it must be a number");
    if (shape.number == Expressions::kNoText) return {};
    const Expr allowed = from ? number_from(x_, *bound, exclusive) : number_to(x_, *bound, exclusive);
    shape.number = shape.number == any_number(x_) ? allowed : x_.both(shape.number, allowed);
    return {};
  };
  const auto draft4 = [&](std::string_view key) {
    const Json* value = schema.find(key);
    return value && value->boolean() && *value->boolean();
  };
  FOVEA_RETURN_IF_ERROR(limit("minimum", true, draft4("exclusiveMinimum")));
  FOVEA_RETURN_IF_ERROR(limit("exclusiveMinimum", true, true));
  FOVEA_RETURN_IF_ERROR(limit("maximum", false, draft4("exclusiveMaximum")));
  FOVEA_RETURN_IF_ERROR(limit("exclusiveMaximum", false, true));
  FOVEA_RETURN_IF_ERROR(read_number_format(schema, path, shape));
  const Json* divisor = schema.find("multipleOf");
  if (!divisor || shape.number == Expressions::kNoText) return {};
  const auto value = Decimal::of(*divisor);
  if (!value || value->negative)
    return refused(path, "multipleOf", "is " + divisor->describe() + "; it must be a number above 0");
  const auto multiple = multiple_of(x_, *value);
  if (!multiple)
    return refused(path, "multipleOf", "is " + divisor->describe() + "; at most 9 digits can be enforced");
  shape.number = shape.number == any_number(x_) ? *multiple : x_.both(shape.number, *multiple);
  return {};
}

Status SchemaReader::read_number_format(const Json& schema, const std::string& path, Shape& shape) {
  const Json* given = schema.find("format");
  if (!given || !given->string() || shape.number == Expressions::kNoText) return {};
  const auto format = number_format(*given->string());
  // One of strings has no effect on numbers; read_strings() refuses one that is not known.
  if (!format && shape.strings.empty() && format_pattern(*given->string()).empty())
    return refused(path, "format",
                   "is \"" + printable(*given->string()) +
                       "\"; those of numbers are float, double, int8 to int64 and uint8 to uint64");
  if (!format || !format->integer) return {};
  const auto bound = [](std::string_view text) {
    Decimal out;
    out.negative = text.starts_with("-");
    out.whole = text.substr(out.negative ? 1 : 0);
    return out;
  };
  for (const Expr allowed : {any_integer(x_), number_from(x_, bound(format->least), false),
                             number_to(x_, bound(format->most), false)})
    shape.number = shape.number == any_number(x_) ? allowed : x_.both(shape.number, allowed);
  return {};
}

Status SchemaReader::read_strings(const Json& schema, const std::string& path, Shape& shape) {
  FOVEA_TRY(least, count_of(schema, path, "minLength"));
  FOVEA_TRY(most, count_of(schema, path, "maxLength"));
  const Json* pattern = schema.find("pattern");
  const Json* format = schema.find("format");
  for (StringShape& string : shape.strings) {
    if (least) string.least = *least;
    if (most) string.most = *most;
  }
  const auto add = [&](std::string_view key, std::string_view source, bool search) -> Status {
    RegexOptions options;
    options.spelling = Spelling::json;
    options.search = search;
    const auto text = compile_regex(x_, source, options);
    if (!text) return refused(path, key, "can't be enforced: " + text.error().message);
    for (StringShape& string : shape.strings)
      string.text = x_.both(string.text, *text);
    return {};
  };
  if (pattern) {
    if (!pattern->string())
      return refused(path, "pattern", "is " + pattern->describe() + "; it must be a string");
    FOVEA_RETURN_IF_ERROR(add("pattern", *pattern->string(), true));
  }
  const std::string name = !format ? "" : format->string() ? *format->string() : format->describe();
  // OpenAPI's password is any string.
  if (format && !shape.strings.empty() && name != "password" && !number_format(name)) {
    const std::string_view source = format_pattern(name);
    if (source.empty())
      return refused(
          path, "format",
          "is \"" + printable(name) +
              "\"; those that can be enforced are date, time, date-time, duration, email, hostname, "
              "ipv4, ipv6, uuid, uri, uri-reference, uri-template, json-pointer, relative-json-pointer and "
              "byte: use pattern for others");
    FOVEA_RETURN_IF_ERROR(add("format", source, false));
  }
  std::erase_if(shape.strings, [](const StringShape& s) { return s.least > s.most; });
  return {};
}

Status SchemaReader::read_arrays(const Json& schema, const std::string& path, Shape& shape) {
  ArrayShape array;
  FOVEA_TRY(least, count_of(schema, path, "minItems"));
  FOVEA_TRY(most, count_of(schema, path, "maxItems"));
  if (least) array.least = *least;
  if (most) array.most = *most;
  ArrayShape::Items items;
  const Json* prefix = schema.find("prefixItems");
  const Json* rest = schema.find("items");
  std::string_view prefix_key = "prefixItems", rest_key = "items";
  if (rest && rest->array()) {  // up to draft 2019-09
    prefix = rest;
    prefix_key = "items";
    rest = schema.find("additionalItems");
    rest_key = "additionalItems";
  }
  if (prefix) {
    if (!prefix->array())
      return refused(path, prefix_key, "is " + prefix->describe() + "; it must be a list of schemas");
    for (size_t i = 0; i < prefix->array()->size(); ++i)
      items.prefix.push_back({&(*prefix->array())[i], false, child(path, prefix_key, i)});
  }
  if (!rest) {
    const Json* unevaluated = schema.find("unevaluatedItems");
    const bool plain = std::ranges::none_of(kInPlace, [&](auto key) { return schema.find(key) != nullptr; });
    const bool anything = unevaluated && unevaluated->boolean() && *unevaluated->boolean();
    if (unevaluated && !anything) {
      if (!plain || schema.find("contains"))
        return refused(path, "unevaluatedItems",
                       "can't be enforced beside $ref, allOf, anyOf, oneOf, if, "
                       "not or contains; use items");
      rest = unevaluated;
      rest_key = "unevaluatedItems";
    }
  }
  if (rest) items.rest = SchemaRef{rest, false, child(path, rest_key)};
  if (const Json* contains = schema.find("contains")) {
    FOVEA_TRY(fewest, count_of(schema, path, "minContains"));
    FOVEA_TRY(greatest, count_of(schema, path, "maxContains"));
    ArrayShape::Contains has{
        {contains, false, child(path, "contains")}, fewest.value_or(1), greatest.value_or(kNoLimit)};
    if (has.least > has.most) shape.arrays.clear();
    if (has.least > 0 || has.most != kNoLimit) array.contains.push_back(has);
  }
  if (const Json* unique = schema.find("uniqueItems");
      unique && unique->boolean() && *unique->boolean() && array.most > 1 && !shape.arrays.empty())
    return refused(path, "uniqueItems", "can't be enforced; leave it out, or set maxItems to 1");
  array.items.push_back(std::move(items));
  Shape other = shape;
  other.arrays.clear();
  if (array.least <= array.most) other.arrays.push_back(std::move(array));
  if (!shape.arrays.empty()) shape.arrays = std::move(other.arrays);
  return {};
}

Status SchemaReader::read_objects(const Json& schema, const std::string& path, Shape& shape) {
  ObjectShape object;
  FOVEA_TRY(least, count_of(schema, path, "minProperties"));
  FOVEA_TRY(most, count_of(schema, path, "maxProperties"));
  if (least) object.least = *least;
  if (most) object.most = *most;
  ObjectShape::Properties properties;
  if (const Json* named = schema.find("properties")) {
    if (!named->object()) return refused(path, "properties", "is not an object");
    for (const auto& [name, value] : *named->object())
      properties.named.emplace_back(name, SchemaRef{&value, false, child(child(path, "properties"), name)});
  }
  if (const Json* patterns = schema.find("patternProperties")) {
    if (!patterns->object()) return refused(path, "patternProperties", "is not an object");
    for (const auto& [pattern, value] : *patterns->object()) {
      RegexOptions options;
      options.spelling = Spelling::json;
      options.search = true;
      const std::string at = child(child(path, "patternProperties"), pattern);
      const auto names = compile_regex(x_, pattern, options);
      if (!names) return invalid("the schema's " + at + " can't be enforced: " + names.error().message);
      properties.patterns.push_back({pattern, *names, {&value, false, at}});
    }
    if (properties.patterns.size() > 4)
      return refused(path, "patternProperties", "has more than 4 patterns, which can't be enforced");
  }
  const Json* others = schema.find("additionalProperties");
  std::string_view others_key = "additionalProperties";
  const bool plain = std::ranges::none_of(kInPlace, [&](auto key) { return schema.find(key) != nullptr; });
  if (!others) {
    const Json* unevaluated = schema.find("unevaluatedProperties");
    const bool anything = unevaluated && unevaluated->boolean() && *unevaluated->boolean();
    if (unevaluated && !anything) {
      if (!plain)
        return refused(path, "unevaluatedProperties",
                       "can't be enforced beside $ref, allOf, anyOf, oneOf, if, not or dependentSchemas; "
                       "use additionalProperties");
      others = unevaluated;
      others_key = "unevaluatedProperties";
    }
  }
  if (others) {
    properties.others = SchemaRef{others, false, child(path, others_key)};
  } else if (strict_ && schema.find("properties") && plain) {
    static const Json kNever(false);
    properties.others = SchemaRef{&kNever, false, child(path, others_key)};
  }
  if (const Json* required = schema.find("required"); required && !required->boolean()) {
    if (!required->array()) return refused(path, "required", "is not a list of names");
    for (const Json& name : *required->array()) {
      if (!name.string()) return refused(path, "required", "has " + name.describe() + "; names are strings");
      if (!object.requires_name(*name.string())) object.required.push_back(*name.string());
    }
  }
  if (const Json* names = schema.find("propertyNames"))
    object.names.push_back({names, false, child(path, "propertyNames")});
  object.properties.push_back(std::move(properties));
  if (shape.objects.empty()) return {};
  shape.objects.clear();
  if (object.least <= object.most) shape.objects.push_back(std::move(object));
  return {};
}

Result<Shape> SchemaReader::value_shape(const Json& value) {
  Shape shape;
  if (value.is_null()) {
    shape.null = true;
  } else if (value.boolean()) {
    (*value.boolean() ? shape.yes : shape.no) = true;
  } else if (value.string()) {
    shape.strings.push_back({literal_of(x_, *value.string(), Spelling::json), 0, kNoLimit});
  } else if (const auto* list = value.array()) {
    ArrayShape array;
    ArrayShape::Items items;
    for (const Json& item : *list) {
      Json::Object schema;
      schema.emplace_back("const", item);
      items.prefix.push_back({&keep(Json(std::move(schema))), false, "const"});
    }
    array.least = array.most = static_cast<uint32_t>(list->size());
    array.items.push_back(std::move(items));
    shape.arrays.push_back(std::move(array));
  } else if (const auto* members = value.object()) {
    ObjectShape object;
    ObjectShape::Properties properties;
    for (const auto& [name, member] : *members) {
      Json::Object schema;
      schema.emplace_back("const", member);
      properties.named.emplace_back(name, SchemaRef{&keep(Json(std::move(schema))), false, "const"});
      object.required.push_back(name);
    }
    properties.others = SchemaRef{&keep(Json(false)), false, "const"};
    object.properties.push_back(std::move(properties));
    shape.objects.push_back(std::move(object));
  } else {
    const std::string text = number_text(value);
    if (text.empty())
      return invalid("the schema has the number " + value.describe() + ", which is too large");
    shape.number = x_.literal(text);
  }
  return shape;
}

Status SchemaReader::read_values(const Json& schema, const std::string& path, Shape& shape) {
  if (const Json* value = schema.find("const")) {
    FOVEA_TRY(only, value_shape(*value));
    FOVEA_RETURN_IF_ERROR(narrow(shape, only, path));
  }
  const Json* values = schema.find("enum");
  if (!values) return {};
  if (!values->array()) return refused(path, "enum", "is not a list");
  Shape any;
  std::vector<Expr> numbers, strings;
  for (const Json& value : *values->array()) {
    FOVEA_TRY(one, value_shape(value));
    if (one.number != Expressions::kNoText)
      numbers.push_back(one.number);
    else if (!one.strings.empty())
      strings.push_back(one.strings[0].text);
    else
      unite(x_, any, one);
  }
  any.number = x_.either(numbers);
  if (!strings.empty()) any.strings.push_back({x_.either(strings), 0, kNoLimit});
  return narrow(shape, any, path);
}

Status SchemaReader::read_dependent(const Json& schema, const std::string& path, Shape& shape) {
  const auto depends = [&](std::string_view key, const std::string& name, const Json& value) -> Status {
    // Without the property, or with it and what it requires.
    Shape without = Shape::all(x_), with = Shape::all(x_);
    ObjectShape::Properties none;
    none.named.emplace_back(name, SchemaRef{&keep(Json(false)), false, path});
    without.objects[0].properties.push_back(std::move(none));
    Shape others = Shape::all(x_);
    others.objects.clear();
    with = Shape();
    with.objects.emplace_back();
    with.objects[0].required.push_back(name);
    if (const auto* names = value.array()) {
      for (const Json& other : *names)
        if (other.string() && !with.objects[0].requires_name(*other.string()))
          with.objects[0].required.push_back(*other.string());
    } else if (is_schema(value)) {
      FOVEA_TRY(then, read({&value, false, child(child(path, key), name)}));
      FOVEA_RETURN_IF_ERROR(narrow(with, then, path));
    } else {
      return refused(path, key, "has " + value.describe() + "; it must be a list of names or a schema");
    }
    unite(x_, without, with);
    return narrow(shape, without, path);
  };
  for (const std::string_view key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const Json* all = schema.find(key);
    if (!all) continue;
    if (!all->object()) return refused(path, key, "is not an object");
    for (const auto& [name, value] : *all->object())
      FOVEA_RETURN_IF_ERROR(depends(key, name, value));
  }
  return {};
}

}  // namespace fovea::grammar
