#include "kernels/cuda/check/narrow.h"

#include <string>

#include "fovea/result.h"

namespace fovea::cuda {

Status narrow_status(std::span<const NarrowArray> arrays, uint32_t beyond) {
  for (size_t i = 0; i < arrays.size(); ++i)
    if (beyond >> i & 1)
      return invalid(std::string(arrays[i].name) +
                     " has a number beyond 32 bits; -2147483648 to 2147483647 are allowed");
  return {};
}

}  // namespace fovea::cuda
