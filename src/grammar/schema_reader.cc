#include "grammar/schema_reader.h"

#include <algorithm>
#include <array>

#include "base/edit_distance.h"
#include "base/printable.h"
#include "grammar/schema_path.h"

namespace fovea::grammar {
namespace {

using text::Json;

constexpr std::string_view kAnnotations[] = {
    "title",
    "description",
    "default",
    "examples",
    "example",
    "$comment",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$schema",
    "$id",
    "id",
    "$anchor",
    "$defs",
    "definitions",
    "$vocabulary",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "discriminator",
    "externalDocs",
    "xml",
    "enumNames",
    "$dynamicAnchor",
};
constexpr std::string_view kEnforced[] = {
    "type",
    "enum",
    "const",
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "properties",
    "patternProperties",
    "additionalProperties",
    "required",
    "minProperties",
    "maxProperties",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
    "nullable",
};

/// `ref` relative to the URI `base`, as far as schemas need it.
std::string join_uri(const std::string& base, const std::string& ref) {
  if (ref.find("://") != std::string::npos || ref.starts_with("urn:")) return ref;
  const size_t scheme = base.find("://");
  const size_t host = scheme == std::string::npos ? 0 : base.find('/', scheme + 3);
  if (ref.starts_with("/"))
    return (host == std::string::npos ? base : base.substr(0, scheme == std::string::npos ? 0 : host)) + ref;
  const size_t slash = base.rfind('/');
  if (slash == std::string::npos || (scheme != std::string::npos && slash < scheme + 3))
    return scheme == std::string::npos ? ref : base + "/" + ref;
  return base.substr(0, slash + 1) + ref;
}

std::optional<std::string> unescape_pointer(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~') {
      ++i;
      if (i == token.size() || (token[i] != '0' && token[i] != '1')) return std::nullopt;
      out += token[i] == '0' ? '~' : '/';
    } else if (token[i] == '%' && i + 2 < token.size()) {
      out += static_cast<char>(std::stoi(std::string(token.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      out += token[i];
    }
  }
  return out;
}

const Json* follow(const Json* at, std::string_view pointer) {
  while (at && !pointer.empty()) {
    if (pointer[0] != '/') return nullptr;
    pointer.remove_prefix(1);
    const auto end = std::min(pointer.find('/'), pointer.size());
    for (size_t i = 0; i + 2 < end + 1; ++i)
      if (pointer[i] == '%' && (i + 2 >= end || !isxdigit(static_cast<unsigned char>(pointer[i + 1])) ||
                                !isxdigit(static_cast<unsigned char>(pointer[i + 2]))))
        return nullptr;
    const auto token = unescape_pointer(pointer.substr(0, end));
    if (!token) return nullptr;
    pointer.remove_prefix(end);
    if (const auto* list = at->array()) {
      size_t index = 0;
      for (const char c : *token)
        index = c >= '0' && c <= '9' && index < list->size() ? index * 10 + static_cast<size_t>(c - '0')
                                                             : list->size();
      at = !token->empty() && index < list->size() ? &(*list)[index] : nullptr;
    } else {
      at = at->object() ? at->find(*token) : nullptr;
    }
  }
  return at;
}

}  // namespace

SchemaReader::SchemaReader(Expressions& expressions, const Json& root, bool strict)
    : x_(expressions), root_(root), strict_(strict) {
  ids_[""] = &root;
  index(root, "", 0);
}

const Json& SchemaReader::keep(Json value) {
  return made_.emplace_back(std::move(value));
}

void SchemaReader::index(const Json& value, const std::string& base, int depth) {
  if (depth > 100) return;
  if (const auto* list = value.array())
    for (const Json& item : *list)
      index(item, base, depth + 1);
  if (!value.object()) return;
  std::string here = base;
  if (const Json* id = value.find("$id"); id && id->string()) {
    here = join_uri(base, *id->string());
    if (here.ends_with("#")) here.pop_back();
    ids_.emplace(here, &value);
  }
  base_of_[&value] = here;
  for (const std::string_view key : {"$anchor", "$dynamicAnchor"})
    if (const Json* anchor = value.find(key); anchor && anchor->string())
      ids_.emplace(here + "#" + *anchor->string(), &value);
  for (const auto& [key, part] : *value.object())
    if (key != "enum" && key != "const" && key != "default" && key != "examples")
      index(part, here, depth + 1);
}

Result<const Json*> SchemaReader::resolve(const Json& schema, const std::string& ref,
                                          const std::string& path) {
  const size_t hash = ref.find('#');
  const std::string fragment = hash == std::string::npos ? "" : ref.substr(hash + 1);
  const std::string document = ref.substr(0, hash);
  const auto base = base_of_.find(&schema);
  const std::string at = base == base_of_.end() ? "" : base->second;
  const std::string uri = document.empty() ? at : join_uri(at, document);
  const Json* target = nullptr;
  if (!fragment.empty() && fragment[0] != '/') {
    const auto found = ids_.find(uri + "#" + fragment);
    if (found != ids_.end()) target = found->second;
  } else if (const auto found = ids_.find(uri); found != ids_.end()) {
    target = follow(found->second, fragment);
  }
  if (!target || !is_schema(*target))
    return refused(path, "$ref",
                   "is \"" + printable(ref) +
                       "\", which is not in the schema; put it into $defs and refer to "
                       "\"#/$defs/...\": other documents are not read");
  return target;
}

bool SchemaReader::never(const SchemaRef& ref) const {
  const bool* value = ref.schema->boolean();
  return value && *value == ref.negated;
}

Result<Shape> SchemaReader::shape(const Conjunction& schemas) {
  Shape shape = Shape::all(x_);
  for (const SchemaRef& ref : schemas) {
    FOVEA_TRY(other, read(ref));
    FOVEA_RETURN_IF_ERROR(narrow(shape, other, ref.path));
  }
  return shape;
}

Status SchemaReader::narrow(Shape& shape, const Shape& other, const std::string& path) {
  if (!intersect(x_, shape, other))
    return invalid("the schema at " + path + " combines more than 256 alternatives; simplify it");
  if (x_.overflown()) return invalid("the schema at " + path + " needs too much memory; simplify it");
  return {};
}

Result<Shape> SchemaReader::read(const SchemaRef& ref) {
  const std::pair key(ref.schema, ref.negated);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  if (reading_.size() > 200 || std::ranges::find(reading_, key) != reading_.end())
    return invalid("the schema at " + ref.path + " refers to itself without a property or item between");
  reading_.push_back(key);
  auto shape =
      ref.negated ? read(SchemaRef{ref.schema, false, ref.path}) : read_schema(*ref.schema, ref.path);
  if (shape && ref.negated) shape = complement(*shape, ref.path);
  reading_.pop_back();
  if (shape) known_[key] = *shape;
  return shape;
}

Result<Shape> SchemaReader::read_schema(const Json& schema, const std::string& path) {
  if (const bool* all = schema.boolean()) return *all ? Shape::all(x_) : Shape();
  if (!schema.object())
    return invalid("the schema's " + path + " is " + schema.describe() +
                   "; it must be an object or a boolean");
  FOVEA_RETURN_IF_ERROR(check_keywords(*schema.object(), path));
  Shape shape = Shape::all(x_);
  FOVEA_RETURN_IF_ERROR(read_types(schema, path, shape));
  FOVEA_RETURN_IF_ERROR(read_numbers(schema, path, shape));
  FOVEA_RETURN_IF_ERROR(read_strings(schema, path, shape));
  FOVEA_RETURN_IF_ERROR(read_arrays(schema, path, shape));
  FOVEA_RETURN_IF_ERROR(read_objects(schema, path, shape));
  FOVEA_RETURN_IF_ERROR(read_values(schema, path, shape));
  FOVEA_RETURN_IF_ERROR(read_dependent(schema, path, shape));
  FOVEA_RETURN_IF_ERROR(read_combined(schema, path, shape));
  return shape;
}

Status SchemaReader::check_keywords(const Json::Object& schema, const std::string& path) {
  for (const auto& [key, value] : schema) {
    const auto is = [&](std::string_view name) { return key == name; };
    if (key.starts_with("x-") || std::ranges::any_of(kAnnotations, is) || std::ranges::any_of(kEnforced, is))
      continue;
    std::string hint;
    for (const std::string_view known : kEnforced)
      if (edit_distance(key, known) <= 2) hint = "; did you mean " + std::string(known) + "?";
    return refused(path, key, "is not a keyword of JSON Schema" + hint + (hint.empty() ? "; remove it" : ""));
  }
  for (const std::string_view keyword : {"$dynamicRef", "$recursiveRef"})
    if (Json(schema).find(keyword)) return refused(path, keyword, "can't be enforced; use $ref");
  return {};
}

Status SchemaReader::read_combined(const Json& schema, const std::string& path, Shape& shape) {
  const auto list_of = [&](std::string_view key) -> Result<const Json::Array*> {
    const Json* list = schema.find(key);
    if (list && (!list->array() || list->array()->empty()))
      return refused(path, key, "is not a list of schemas");
    return list ? list->array() : nullptr;
  };
  if (const Json* ref = schema.find("$ref")) {
    if (!ref->string()) return refused(path, "$ref", "is not a string");
    FOVEA_TRY(target, resolve(schema, *ref->string(), path));
    FOVEA_TRY(other, read({target, false, child(path, "$ref")}));
    FOVEA_RETURN_IF_ERROR(narrow(shape, other, path));
  }
  FOVEA_TRY(all, list_of("allOf"));
  for (size_t i = 0; all && i < all->size(); ++i) {
    FOVEA_TRY(other, read({&(*all)[i], false, child(path, "allOf", i)}));
    FOVEA_RETURN_IF_ERROR(narrow(shape, other, path));
  }
  FOVEA_TRY(any, list_of("anyOf"));
  if (any) {
    Shape either;
    for (size_t i = 0; i < any->size(); ++i) {
      FOVEA_TRY(other, read({&(*any)[i], false, child(path, "anyOf", i)}));
      unite(x_, either, other);
    }
    FOVEA_RETURN_IF_ERROR(narrow(shape, either, path));
  }
  FOVEA_TRY(one, list_of("oneOf"));
  if (one) {
    FOVEA_TRY(either, one_of(*one, path));
    FOVEA_RETURN_IF_ERROR(narrow(shape, either, path));
  }
  if (const Json* inner = schema.find("not")) {
    FOVEA_TRY(other, read({inner, true, child(path, "not")}));
    FOVEA_RETURN_IF_ERROR(narrow(shape, other, path));
  }
  const Json* condition = schema.find("if");
  if (!condition) return {};
  static const Json kAll(true);
  const auto branch = [&](std::string_view key, bool negated) -> Result<Shape> {
    const Json* then = schema.find(key);
    FOVEA_TRY(when, read({condition, negated, child(path, "if")}));
    FOVEA_TRY(what, read({then ? then : &kAll, false, child(path, key)}));
    FOVEA_RETURN_IF_ERROR(narrow(when, what, path));
    return when;
  };
  if (!schema.find("then") && !schema.find("else")) return {};
  FOVEA_TRY(then, branch("then", false));
  FOVEA_TRY(otherwise, branch("else", true));
  unite(x_, then, otherwise);
  return narrow(shape, then, path);
}

}  // namespace fovea::grammar
