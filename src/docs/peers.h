#pragma once
// What SGLang's and Mini-SGLang's documentation says, kept beside our tables so that the pages can compare.
#include <span>
#include <string>
#include <string_view>

#include "docs/matrices.h"

namespace fovea::docs {

/// SGLang's matrix with its five columns, for our backends.
std::string sglang_table(const BackendRegistry& backends, Proofs proofs);
/// Mini-SGLang's page sizes, and ours.
std::string mini_sglang_table(const BackendRegistry& backends);
/// What the two choose where nothing is set.
std::string peer_priority_table();
/// Their names of backends, and what each stands for here; an error for one that no backend has.
Result<std::string> name_table(const BackendRegistry& backends);

}  // namespace fovea::docs
