#pragma once
// A call's buffers in the order of its program.
#include <span>
#include <vector>

#include "flex/op.h"
#include "flex/program.h"
#include "fovea/flex_attention.h"

namespace fovea::flex {

/// Errors: a buffer that is missing, of another type, empty or null.
Result<std::vector<Buffer>> bind(const Program& program, std::span<const FlexBuffer> given);

}  // namespace fovea::flex
