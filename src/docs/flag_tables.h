#pragma once
// The flag maps of docs/coming_from.md, from the table that the command line reads.
#include <string>

#include "fovea/attention_backend.h"
#include "launch/foreign_flags.h"

namespace fovea::docs {

/// A row for each flag of `peer`: taken ones first, then those without a meaning here, then the refused.
std::string flag_table(Peer peer);

}  // namespace fovea::docs
