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
  /// What loop.changed() saw last, written out: the values themselves could hold this loop.
  std::optional<std::string> changed;
  // For recursive loops: what calling the loop runs, and the place of its scope among those that the
  // interpreter keeps. Scopes hold loops, so owning one here could make a chain of owners of any length.
  const Statement* statement = nullptr;
  size_t scope = 0;
};

}  // namespace fovea::text::jinja
