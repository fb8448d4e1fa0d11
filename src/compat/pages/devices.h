#pragma once
// The devices that --device takes.
#include <string>

namespace fovea::docs {

/// Name, products, compute capability, shared memory of a block.
std::string device_table();

}  // namespace fovea::docs
