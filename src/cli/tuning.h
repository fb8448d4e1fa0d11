#pragma once
// --tune-file: measured choices of fovea tune for commands that run a model.
#include <string>
#include <vector>

#include "cli/options.h"
#include "tune/tune_file.h"

namespace fovea::cli {

/// What became of a tune file.
struct Tuning {
  std::string file;                        ///< "" = there is none
  std::string ignored;                     ///< why its choices are not used; "" = they are
  std::vector<tune::TunedLinear> choices;  ///< that are used
};

/// The file of the flags, or the usual one if it exists, for GPU `index`. `named` files are expected: one
/// that is missing is ignored with a reason.
Tuning find_tuning(const ModelFlags& flags, int index);

/// Uses the choices in this process; a line in the log says which file is used, or ignored and why.
void use_tuning(const ModelFlags& flags, const EngineConfig& config);

}  // namespace fovea::cli
