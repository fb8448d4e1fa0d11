#pragma once
// Names and times of answers.
#include <cstdint>
#include <string>

namespace fovea::server {

/// `prefix` and random hex digits.
std::string random_id(std::string prefix, int digits = 24);
/// Since 1970.
int64_t unix_seconds();

}  // namespace fovea::server
