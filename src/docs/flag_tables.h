#pragma once
// What the command line and the environment take, from the tables that read them.
#include <string>

#include "launch/foreign_flags.h"

namespace fovea::docs {

/// A row for each flag of `peer`: taken ones first, then those without a meaning here, then the refused.
std::string flag_table(Peer peer);

/// The keys of --attention-config.
std::string key_table();

/// The environment variables that the program knows.
std::string environment_table();

}  // namespace fovea::docs
