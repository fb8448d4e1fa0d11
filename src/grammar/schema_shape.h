#pragma once
// What a schema allows, by type: the form in which schemas are combined (allOf, anyOf, not) before they
// become rules. Values inside arrays and objects stay references to schemas.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/expressions.h"
#include "text/json_value.h"

namespace fovea::grammar {

/// A schema, or what it does not allow.
struct SchemaRef {
  const text::Json* schema = nullptr;
  bool negated = false;
  std::string path;  ///< for messages
  bool operator<(const SchemaRef& other) const {
    return std::pair(schema, negated) < std::pair(other.schema, other.negated);
  }
  bool operator==(const SchemaRef& other) const { return schema == other.schema && negated == other.negated; }
};

/// All of these schemas hold; sorted and distinct.
using Conjunction = std::vector<SchemaRef>;
void add_to(Conjunction& all, const SchemaRef& ref);
void add_to(Conjunction& all, const Conjunction& others);

struct StringShape {
  Expr text = Expressions::kAnything;   ///< inside the quotes, in the spelling Spelling::json
  uint32_t least = 0, most = kNoLimit;  ///< characters
};

struct ArrayShape {
  /// The items of one schema.
  struct Items {
    std::vector<SchemaRef> prefix;
    std::optional<SchemaRef> rest;
  };
  struct Contains {
    SchemaRef item;
    uint32_t least = 1, most = kNoLimit;
  };
  std::vector<Items> items;
  std::vector<Contains> contains;
  uint32_t least = 0, most = kNoLimit;

  Conjunction at(size_t index) const;
  size_t longest_prefix() const;
};

struct ObjectShape {
  struct Pattern {
    std::string text;
    Expr names;  ///< inside the quotes
    SchemaRef value;
  };
  /// The properties of one schema: `others` are those that it neither names nor matches by a pattern.
  struct Properties {
    std::vector<std::pair<std::string, SchemaRef>> named;
    std::vector<Pattern> patterns;
    std::optional<SchemaRef> others;
  };
  std::vector<Properties> properties;
  std::vector<std::string> required;
  std::vector<SchemaRef> names;  ///< what all names must be
  uint32_t least = 0, most = kNoLimit;

  bool requires_name(const std::string& name) const;
};

struct Shape {
  bool null = false, yes = false, no = false;
  Expr number = Expressions::kNoText;
  std::vector<StringShape> strings;  ///< alternatives
  std::vector<ArrayShape> arrays;
  std::vector<ObjectShape> objects;

  static Shape all(Expressions& expressions);
  bool empty(Expressions& expressions) const;
};

/// What the value of the property `name` must be.
Conjunction schemas_of(Expressions& expressions, const ObjectShape& object, const std::string& name);

/// Both hold. False: too many alternatives.
bool intersect(Expressions& expressions, Shape& shape, const Shape& other);
void unite(Expressions& expressions, Shape& shape, const Shape& other);

/// What stands between the quotes of a string of this shape.
Expr string_body(Expressions& expressions, const StringShape& shape);
/// With its quotes.
Expr string_text(Expressions& expressions, const StringShape& shape);

}  // namespace fovea::grammar
