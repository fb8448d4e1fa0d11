#pragma once
// The `loop` variable of one running for statement.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/jinja_value.h"

namespace fovea::text::jinja {

struct Statement;

struct LoopState {
  std::vector<Value> items;
  size_t index = 0;  ///< of the current item
  int depth = 0;     ///< nesting of recursive loops
  int nesting = 1;   ///< as Value::nesting
  /// What loop.changed() saw last, as text: the values themselves could hold this loop.
  std::optional<std::string> changed;
  // For recursive loops: the statement that a call runs, and the index of its scope in the interpreter's
  // list. Scopes own loops, so owning a scope here could build ownership chains of any length.
  const Statement* statement = nullptr;
  size_t scope = 0;
};

}  // namespace fovea::text::jinja
