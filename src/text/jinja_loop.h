#pragma once
// The `loop` variable of one running for statement.
#include <memory>
#include <vector>

#include "text/jinja_value.h"

namespace fovea::text::jinja {

struct Scope;
struct Statement;

struct LoopState {
  std::vector<Value> items;
  size_t index = 0;  ///< of the current item
  int depth = 0;     ///< nesting of recursive loops
  int nesting = 1;   ///< as Value::nesting
  // For recursive loops: what calling the loop runs, and where.
  const Statement* statement = nullptr;
  std::shared_ptr<Scope> scope;
};

}  // namespace fovea::text::jinja
