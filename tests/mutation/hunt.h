#pragma once
// Runs the cases of conformance against backends with one defect each, until a case detects it.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mutants.h"

namespace fovea::conformance {

class Machine;

struct HuntOptions {
  DeviceInfo device = {};      ///< that this program runs on
  Machine* machine = nullptr;  ///< where cases run; null = on the CPU
  uint64_t seed = 1;
  int threads = 0;  ///< concurrent cases; 0 = one per CPU that this process may use
};

/// A case that found a defect.
struct Catch {
  uint64_t number = 0;  ///< the argument of `fovea conformance --backend ... --case`
  std::string row;      ///< the argument of its --row; "" = none
  std::string levels;   ///< the case in words
  std::string how;      ///< the judgement
};

struct Hunted {
  const Defect* defect = nullptr;
  std::optional<Catch> caught;  ///< by the first case with a wrong result; none = the defect survived
};

struct HuntReport {
  std::vector<Hunted> defects;
  int64_t cases = 0;  ///< that were run, each right without a defect
  double seconds = 0;
};

/// Runs each case first without a defect, which must be right, and then with each defect that is not caught
/// yet. CPU kernels run on their best instruction set. Error: a case that is wrong without any defect; a
/// defect that made the device unusable.
Result<HuntReport> hunt(const BackendInfo& info, const BackendRegistry::Factory& create,
                        const std::vector<const Defect*>& wanted, const HuntOptions& options);

}  // namespace fovea::conformance
