#pragma once
// Reads schemas into shapes: keywords, references, and how they combine.
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "fovea/result.h"
#include "grammar/schema_shape.h"

namespace fovea::grammar {

class SchemaReader {
 public:
  /// `root` must outlive the reader.
  SchemaReader(Expressions& expressions, const text::Json& root, bool strict);

  /// What all of these schemas allow together.
  Result<Shape> shape(const Conjunction& schemas);
  /// Whether a schema allows nothing, as far as its own keywords show.
  bool never(const SchemaRef& ref) const;

 private:
  struct Keywords;
  Result<Shape> read(const SchemaRef& ref);
  Result<Shape> read_schema(const text::Json& schema, const std::string& path);
  Result<Shape> complement(const Shape& shape, const std::string& path);
  Result<std::vector<ArrayShape>> without(const ArrayShape& array, const std::string& path);
  Result<std::vector<ObjectShape>> without(const ObjectShape& object, const std::string& path);
  bool disjoint(const Shape& a, const Shape& b);
  bool disjoint(const ObjectShape& a, const ObjectShape& b);
  bool disjoint(const ArrayShape& a, const ArrayShape& b);

  Status check_keywords(const text::Json::Object& schema, const std::string& path);
  Status read_types(const text::Json& schema, const std::string& path, Shape& shape);
  Status read_numbers(const text::Json& schema, const std::string& path, Shape& shape);
  Status read_number_format(const text::Json& schema, const std::string& path, Shape& shape);
  Status read_strings(const text::Json& schema, const std::string& path, Shape& shape);
  Status read_arrays(const text::Json& schema, const std::string& path, Shape& shape);
  Status read_objects(const text::Json& schema, const std::string& path, Shape& shape);
  Status read_values(const text::Json& schema, const std::string& path, Shape& shape);
  Status read_combined(const text::Json& schema, const std::string& path, Shape& shape);
  Status read_dependent(const text::Json& schema, const std::string& path, Shape& shape);
  Result<Shape> one_of(const text::Json::Array& list, const std::string& path);
  Status narrow(Shape& shape, const Shape& other, const std::string& path);
  Result<Shape> value_shape(const text::Json& value);
  Result<const text::Json*> resolve(const text::Json& schema, const std::string& ref,
                                    const std::string& path);
  const text::Json& keep(text::Json value);
  void index(const text::Json& value, const std::string& base, int depth);

  Expressions& x_;
  const text::Json& root_;
  bool strict_;
  std::deque<text::Json> made_;
  std::map<std::string, const text::Json*> ids_;  // absolute, with #anchor
  std::unordered_map<const text::Json*, std::string> base_of_;
  std::vector<std::pair<const text::Json*, bool>> reading_;
  std::map<std::pair<const text::Json*, bool>, Shape> known_;
};

}  // namespace fovea::grammar
