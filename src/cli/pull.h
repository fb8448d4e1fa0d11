#pragma once
// fovea pull.
#include <string>

#include "fovea/result_fwd.h"

namespace fovea::cli {

struct PullFlags {
  std::string model, revision = "main";
  bool all = false;
  int jobs = 4;
};

Status run_pull(const PullFlags& flags);

}  // namespace fovea::cli
