#pragma once
// Tables of SGLang's and Mini-SGLang's documentation beside ours.
#include <string>
#include <string_view>

#include "compat/pages/matrices.h"

namespace fovea::docs {

/// SGLang's matrix with its five columns, for our backends.
std::string sglang_table(const BackendRegistry& backends, Proofs proofs);
/// Mini-SGLang's page sizes, and ours.
std::string mini_sglang_table(const BackendRegistry& backends);
/// One of peer_tables(), unchanged.
std::string documented_table(std::string_view id);
/// Their names of backends, and what each means here; an error for a name that no backend has.
Result<std::string> name_table(const BackendRegistry& backends);

}  // namespace fovea::docs
