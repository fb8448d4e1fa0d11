#pragma once
// A case with its reference results, which do not depend on the backend's instruction set.
#include <string>

#include "conformance/invariance.h"
#include "conformance/uses.h"
#include "fovea/attention_backend.h"

namespace fovea::conformance {

struct Prepared {
  Case c;
  Output want, textbook;                ///< of c.problem
  Output second_want, second_textbook;  ///< of c.second
  Uses uses;
};

Prepared prepare(Case c, ThreadPool& pool);

/// The result of a case on one instruction set.
struct Attempt {
  std::string failure;  ///< empty = passed
  Errors worst;
  /// The kernels that produced the judged output.
  std::vector<KernelName> launched;
};

/// Runs all tests of the case.
Attempt attempt(AttentionBackend& backend, const Prepared& prepared, Pools& pools);

}  // namespace fovea::conformance
