// A build without CUDA has no GPU to run cases on.
#include "conformance/machine.h"

#include "fovea/result.h"

namespace fovea::conformance {

Result<Gpu> open_gpu() {
  return unsupported(
      "this program is built without CUDA; configure with -DFOVEA_CUDA=ON to prove anything on a GPU");
}

}  // namespace fovea::conformance
