#pragma once
// fovea docs: documentation pages generated from the tables.
#include <string>

#include "fovea/result_fwd.h"

namespace CLI {
class App;
}

namespace fovea::cli {

struct DocsFlags {
  std::string out = "docs";
  std::string proof = "proof";
  bool check = false;
};

void add_docs(CLI::App& root, DocsFlags& flags);
Status run_docs(const DocsFlags& flags);

}  // namespace fovea::cli
