#pragma once
// The pages that `fovea docs` writes: prose of docs/templates filled with the program's tables.
#include <string>
#include <string_view>
#include <vector>

#include "compat/pages/matrices.h"

namespace fovea::docs {

struct Page {
  std::string_view file;  ///< in the folder docs
  std::string text;
};

/// Depends only on the tables and `proofs`: the same bytes on every machine.
Result<std::vector<Page>> render_pages(const BackendRegistry& backends, Proofs proofs);

/// An error that names the first line of `file` where `have` differs from `page`'s text.
Status check_page(const std::string& file, std::string_view have, const Page& page);

}  // namespace fovea::docs
