#pragma once
// The orders of automatic choice, by device class.
#include <string>

#include "fovea/attention.h"

namespace fovea::docs {

/// A column for each device class (devices with one order share it), a row for each priority from 1.
/// `spec` says the kind of attention.
std::string priority_table(const AttentionSpec& spec);

}  // namespace fovea::docs
