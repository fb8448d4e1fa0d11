#pragma once
// Backends with one defect each, which conformance has to find.
#include <functional>
#include <string_view>
#include <vector>

#include "base/mutation.h"
#include "conformance/mutant.h"

namespace fovea::conformance {

struct Defect {
  std::string_view name;
  std::string_view breaks;  ///< one line
  /// Around the backend. It must be safe on a GPU, where the arrays of a step are the device's, unless
  /// `reads_arrays`.
  std::function<void(Mutant&)> around = [](Mutant&) {};
  bool reads_arrays = false;
  Mutation inside = Mutation::none;  ///< in its code
  /// `inside` is in code that the reference in fp64 shares, so that cases are prepared with it too.
  bool shared = false;
  /// It reads keys that the mask hides, so that cases whose hidden pages are no pages would end the program.
  bool sees_more = false;
  /// Families of kernels that the code of `inside` is in: "cpu", "sm80", "sm90", "portable", "simt".
  std::vector<std::string_view> families = {};
};

/// All of them; names are unique.
const std::vector<Defect>& defects();

/// Whether kernels of this row can have it.
bool concerns(const Defect& defect, const BackendInfo& info);

}  // namespace fovea::conformance
