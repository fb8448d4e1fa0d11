#pragma once
// The sizes of ABI 1's structs: the least that a program can give to read_struct(). They count the padding at
// the end, in which no field may ever begin: programs leave in it what was there.
#include "base/sized_struct.h"

namespace fovea::c_api {

inline constexpr size_t kSpecSize1 = 104, kLimitsSize1 = 32, kStepSize1 = 96, kLayerSize1 = 88,
                        kAppendSize1 = 176;

}  // namespace fovea::c_api
