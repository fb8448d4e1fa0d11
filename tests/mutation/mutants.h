#pragma once
// Backends with one defect each, which conformance has to detect.
#include <functional>
#include <string_view>
#include <vector>

#include "base/mutation.h"
#include "conformance/mutant.h"

namespace fovea::conformance {

struct Defect {
  std::string_view name;
  std::string_view breaks;  ///< what is wrong, in one line
  /// The defect as a wrapper of the backend. It must be safe on a GPU, where the arrays of a step are in
  /// device memory, unless `reads_arrays`.
  std::function<void(Mutant&)> around = [](Mutant&) {};
  bool reads_arrays = false;
  Mutation inside = Mutation::none;  ///< a defect in the backend's code
  /// `inside` is in code shared with the fp64 reference, so cases are prepared with the defect too.
  bool shared = false;
  /// It reads keys that the mask hides; cases whose hidden pages do not exist would crash the program.
  bool sees_more = false;
  /// Kernel families that can have the defect: "cpu", "sm80", "sm90", "portable", "simt"; empty = all.
  std::vector<std::string_view> families = {};
};

/// All defects; names are unique.
const std::vector<Defect>& defects();

/// Whether the kernels of this row can have the defect.
bool concerns(const Defect& defect, const BackendInfo& info);

}  // namespace fovea::conformance
