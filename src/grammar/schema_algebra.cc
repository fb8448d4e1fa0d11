// What schemas do not allow, and whether two allow nothing in common.
#include <algorithm>

#include "grammar/json_text.h"
#include "grammar/schema_path.h"
#include "grammar/schema_reader.h"

namespace fovea::grammar {

using text::Json;

Result<Shape> SchemaReader::one_of(const Json::Array& list, const std::string& path) {
  std::vector<Shape> shapes;
  for (size_t i = 0; i < list.size(); ++i) {
    FOVEA_TRY(shape, read({&list[i], false, child(path, "oneOf", i)}));
    shapes.push_back(std::move(shape));
  }
  Shape either;
  for (size_t i = 0; i < list.size(); ++i) {
    Shape only = shapes[i];
    for (size_t j = 0; j < list.size(); ++j) {
      if (i == j || disjoint(shapes[i], shapes[j])) continue;
      auto other = read({&list[j], true, child(path, "oneOf", j)});
      if (!other)
        return refused(path, "oneOf",
                       "has schemas " + std::to_string(std::min(i, j)) + " and " +
                           std::to_string(std::max(i, j)) +
                           ", which may both hold, and that can't be excluded; use anyOf, or let a required "
                           "property with a const tell them apart");
      FOVEA_RETURN_IF_ERROR(narrow(only, *other, path));
    }
    unite(x_, either, only);
  }
  return either;
}

bool SchemaReader::disjoint(const Shape& a, const Shape& b) {
  if ((a.null && b.null) || (a.yes && b.yes) || (a.no && b.no)) return false;
  if (x_.can_match(x_.both(a.number, b.number))) return false;
  for (const StringShape& s : a.strings)
    for (const StringShape& t : b.strings) {
      const StringShape both{x_.both(s.text, t.text), std::max(s.least, t.least), std::min(s.most, t.most)};
      if (both.least <= both.most && x_.can_match(string_text(x_, both))) return false;
    }
  for (const ArrayShape& s : a.arrays)
    for (const ArrayShape& t : b.arrays)
      if (!disjoint(s, t)) return false;
  for (const ObjectShape& s : a.objects)
    for (const ObjectShape& t : b.objects)
      if (!disjoint(s, t)) return false;
  return true;
}

bool SchemaReader::disjoint(const ArrayShape& a, const ArrayShape& b) {
  const uint32_t least = std::max(a.least, b.least);
  if (least > std::min(a.most, b.most)) return true;
  for (size_t i = 0; i < std::min<size_t>(least, 4); ++i) {
    Conjunction both = a.at(i);
    add_to(both, b.at(i));
    const auto shape = this->shape(both);
    if (shape && shape->empty(x_)) return true;
  }
  return false;
}

bool SchemaReader::disjoint(const ObjectShape& a, const ObjectShape& b) {
  if (std::max(a.least, b.least) > std::min(a.most, b.most)) return true;
  for (const auto* required : {&a.required, &b.required})
    for (const std::string& name : *required) {
      Conjunction both;
      for (const ObjectShape* object : {&a, &b})
        add_to(both, schemas_of(x_, *object, name));
      const auto shape = this->shape(both);
      if (shape && shape->empty(x_)) return true;
    }
  return false;
}

Result<Shape> SchemaReader::complement(const Shape& shape, const std::string& path) {
  Shape out;
  out.null = !shape.null;
  out.yes = !shape.yes;
  out.no = !shape.no;
  // 1, 1.0 and 1e0 are equal: where some numbers are excluded, only one spelling of each is left.
  const Expr number = any_number(x_);
  out.number = shape.number == Expressions::kNoText ? number
               : shape.number == number             ? Expressions::kNoText
                                                    : x_.both(shortest_number(x_), x_.negate(shape.number));
  out.strings.emplace_back();
  out.arrays.emplace_back();
  out.objects.emplace_back();
  for (const StringShape& string : shape.strings) {
    Shape other = Shape::all(x_);
    other.strings.clear();
    if (string.text != Expressions::kAnything) other.strings.push_back({x_.negate(string.text), 0, kNoLimit});
    if (string.least > 0) other.strings.push_back({Expressions::kAnything, 0, string.least - 1});
    if (string.most != kNoLimit) other.strings.push_back({Expressions::kAnything, string.most + 1, kNoLimit});
    FOVEA_RETURN_IF_ERROR(narrow(out, other, path));
  }
  for (const ArrayShape& array : shape.arrays) {
    Shape other = Shape::all(x_);
    FOVEA_TRY(arrays, without(array, path));
    other.arrays = std::move(arrays);
    FOVEA_RETURN_IF_ERROR(narrow(out, other, path));
  }
  for (const ObjectShape& object : shape.objects) {
    Shape other = Shape::all(x_);
    FOVEA_TRY(objects, without(object, path));
    other.objects = std::move(objects);
    FOVEA_RETURN_IF_ERROR(narrow(out, other, path));
  }
  return out;
}

Result<std::vector<ArrayShape>> SchemaReader::without(const ArrayShape& array, const std::string& path) {
  std::vector<ArrayShape> out;
  if (array.least > 0) {
    out.emplace_back();
    out.back().most = array.least - 1;
  }
  if (array.most != kNoLimit) {
    out.emplace_back();
    out.back().least = array.most + 1;
  }
  for (const ArrayShape::Items& items : array.items) {
    for (size_t i = 0; i < items.prefix.size(); ++i) {  // the i-th item is there, and not like this
      ArrayShape& other = out.emplace_back();
      other.least = static_cast<uint32_t>(i + 1);
      ArrayShape::Items one;
      one.prefix.assign(i, {&keep(Json(true)), false, path});
      one.prefix.push_back(items.prefix[i]);
      one.prefix.back().negated = !one.prefix.back().negated;
      other.items.push_back(std::move(one));
    }
    if (!items.rest || (items.rest->schema->boolean() && *items.rest->schema->boolean())) continue;
    if (!items.prefix.empty())
      return invalid("the schema at " + path +
                     " excludes arrays by items beside prefixItems, which can't be "
                     "enforced");
    ArrayShape& other = out.emplace_back();
    SchemaRef item = *items.rest;
    item.negated = !item.negated;
    other.contains.push_back({item, 1, kNoLimit});
  }
  for (const ArrayShape::Contains& contains : array.contains) {
    if (contains.least > 0) {
      out.emplace_back();
      out.back().contains.push_back({contains.item, 0, contains.least - 1});
    }
    if (contains.most != kNoLimit) {
      out.emplace_back();
      out.back().contains.push_back({contains.item, contains.most + 1, kNoLimit});
    }
  }
  return out;
}

Result<std::vector<ObjectShape>> SchemaReader::without(const ObjectShape& object, const std::string& path) {
  std::vector<ObjectShape> out;
  if (object.least > 0) {
    out.emplace_back();
    out.back().most = object.least - 1;
  }
  if (object.most != kNoLimit) {
    out.emplace_back();
    out.back().least = object.most + 1;
  }
  const auto property = [&](const std::string& name, const SchemaRef& value) {
    ObjectShape& other = out.emplace_back();
    ObjectShape::Properties properties;
    properties.named.emplace_back(name, value);
    other.properties.push_back(std::move(properties));
    return &other;
  };
  for (const std::string& name : object.required)
    property(name, {&keep(Json(false)), false, path});
  for (const ObjectShape::Properties& properties : object.properties) {
    for (const auto& [name, value] : properties.named) {
      SchemaRef negated = value;
      negated.negated = !negated.negated;
      if (!never(negated)) property(name, negated)->required.push_back(name);
    }
    const bool free =
        !properties.others || (properties.others->schema->boolean() && *properties.others->schema->boolean());
    if (!free || !properties.patterns.empty())
      return invalid(
          "the schema at " + path +
          " excludes objects by additionalProperties or patternProperties, which can't be enforced");
  }
  if (!object.names.empty())
    return invalid("the schema at " + path + " excludes objects by propertyNames, which can't be enforced");
  return out;
}

}  // namespace fovea::grammar
