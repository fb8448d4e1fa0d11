#pragma once
// A case with what it is judged by, which does not depend on the backend's instruction set.
#include <string>

#include "conformance/invariance.h"
#include "conformance/uses.h"

namespace fovea::conformance {

struct Prepared {
  Case c;
  Output want, textbook;                ///< of c.problem
  Output second_want, second_textbook;  ///< of c.second
  Uses uses;
};

Prepared prepare(Case c, ThreadPool& pool);

/// What came of a case on one instruction set.
struct Attempt {
  std::string failure;  ///< empty = right
  Errors worst;
  /// Those that made the output which was judged.
  std::vector<KernelName> launched;
};

/// Everything that the case asks for.
Attempt attempt(AttentionBackend& backend, const Prepared& prepared, Pools& pools);

}  // namespace fovea::conformance
