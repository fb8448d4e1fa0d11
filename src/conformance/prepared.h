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

/// Everything that the case asks for; empty = right.
std::string attempt(AttentionBackend& backend, const Prepared& prepared, Pools& pools, Errors& worst);

}  // namespace fovea::conformance
