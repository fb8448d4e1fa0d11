#pragma once
// Declarations that the filter sources share.
#include <map>
#include <string_view>
#include <vector>

#include "text/jinja_runtime.h"

namespace fovea::text::jinja {

using Filter = Value (*)(Runtime&, const Value& input, const Arguments&);
using FilterTable = std::map<std::string_view, Filter>;
using Args = std::vector<const Value*>;  ///< as bind() returns them

void add_number_filters(FilterTable& table);
void add_sequence_filters(FilterTable& table);
void add_text_filters(FilterTable& table);

/// Truth value of an optional argument.
bool flag(const Value* value, bool fallback);

/// The value at a path such as "a.b.0" of an item, as in the attribute arguments of filters; `fallback`, if
/// not null, replaces undefined parts.
Value attribute_path(Runtime& rt, const Value& item, const Value& path, const Value* fallback);

}  // namespace fovea::text::jinja
