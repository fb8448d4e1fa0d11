#pragma once
// What SGLang's and Mini-SGLang's documentation says, beside our tables.
#include <string>
#include <string_view>

#include "docs/matrices.h"

namespace fovea::docs {

/// SGLang's matrix with its five columns, for our backends.
std::string sglang_table(const BackendRegistry& backends, Proofs proofs);
/// Mini-SGLang's page sizes, and ours.
std::string mini_sglang_table(const BackendRegistry& backends);
/// One of peer_tables() as it is.
std::string documented_table(std::string_view id);
/// Their names of backends, and what each stands for here; an error for one that no backend has.
Result<std::string> name_table(const BackendRegistry& backends);

}  // namespace fovea::docs
