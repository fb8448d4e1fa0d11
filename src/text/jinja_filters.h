#pragma once
// What the files of filters share.
#include <map>
#include <string_view>
#include <vector>

#include "text/jinja_runtime.h"

namespace fovea::text::jinja {

using Filter = Value (*)(Runtime&, const Value& input, const Arguments&);
using FilterTable = std::map<std::string_view, Filter>;
using Args = std::vector<const Value*>;  ///< as bind() gives them

void add_number_filters(FilterTable& table);
void add_sequence_filters(FilterTable& table);
void add_text_filters(FilterTable& table);

/// The truth of an optional argument.
bool flag(const Value* value, bool fallback);

/// "a.b.0" of an item, as the attribute arguments of filters mean it; `fallback` (or null) stands for parts
/// that are undefined.
Value attribute_path(Runtime& rt, const Value& item, const Value& path, const Value* fallback);

}  // namespace fovea::text::jinja
