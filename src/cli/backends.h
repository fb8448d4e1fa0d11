#pragma once
// fovea backends: every attention backend, built or not, and what it can do.
#include <string>

#include "fovea/result.h"

namespace CLI {
class App;
}

namespace fovea::cli {

struct BackendsFlags {
  bool json = false;
};

void add_backends(CLI::App& root, BackendsFlags& flags);
Status run_backends(const BackendsFlags& flags);

/// All columns of all rows, their documents' values, MLA prefill, priorities and what SGLang and Mini-SGLang
/// document, as one JSON object: constraints for programs that choose settings.
std::string backends_json();

}  // namespace fovea::cli
