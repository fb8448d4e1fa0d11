#pragma once
// The sizes of the first versions of the structs: the minimum that read_struct() accepts. They include the
// trailing padding, in which no later field may begin, because programs leave it uninitialised.
#include "base/sized_struct.h"

namespace fovea::c_api {

inline constexpr size_t kSpecSize1 = 104, kLimitsSize1 = 32, kStepSize1 = 96, kLayerSize1 = 88,
                        kAppendSize1 = 176, kLinearSize1 = 120, kHstuSize1 = 112, kFlexSize1 = 120;

}  // namespace fovea::c_api
