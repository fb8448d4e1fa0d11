#pragma once
// NVIDIA's run-time compiler, opened when it is first needed: programs don't link it.
#include <string>
#include <string_view>

#include "fovea/result.h"

namespace fovea::flex {

struct Compiled {
  std::string cubin;
  double seconds = 0;
};

/// CUDA C++ to machine code for "sm_90" or the like. Errors: the library is missing (the fix says how to get
/// it); the compiler's log.
Result<Compiled> nvrtc_compile(const std::string& source, std::string_view arch);

/// "13.0"; an error as above.
Result<std::string> nvrtc_version();

}  // namespace fovea::flex
