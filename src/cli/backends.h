#pragma once
// fovea backends: every attention backend, built or not, and what it can do.
#include <string>
#include <vector>

#include "fovea/attention_backend.h"
#include "fovea/result_fwd.h"

namespace CLI {
class App;
}

namespace fovea::cli {

struct BackendsFlags {
  std::vector<std::string> libraries;  ///< main.cc loads them into `registry`
  bool json = false;
  const BackendRegistry* registry = nullptr;  ///< null = builtin_backends()
};

void add_backends(CLI::App& root, BackendsFlags& flags);
Status run_backends(const BackendsFlags& flags);

}  // namespace fovea::cli
