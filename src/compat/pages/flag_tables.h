#pragma once
// The accepted command-line flags and environment variables, from the tables that read them.
#include <string>

#include "compat/launch/foreign_flags.h"

namespace fovea::docs {

/// A row for each flag of `peer`: accepted ones first, then those without a meaning here, then refused ones.
std::string flag_table(Peer peer);

/// The keys of --attention-config.
std::string key_table();

/// The environment variables that the program knows.
std::string environment_table();

}  // namespace fovea::docs
