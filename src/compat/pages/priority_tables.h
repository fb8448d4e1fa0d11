#pragma once
// The orders of automatic choice, by device class.
#include <string>

namespace fovea::docs {

/// A row for each list of MLA, or of the others; a column for each priority from 1.
std::string priority_table(bool mla);

}  // namespace fovea::docs
