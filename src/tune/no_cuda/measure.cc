#include "tune/tune.h"

namespace fovea::tune {

Result<TuneKey> key_of_device(int) {
  return unsupported("this build has no CUDA code: build with FOVEA_BUILD_CUDA=1 ./run.sh");
}

Result<std::vector<TunedLinear>> measure(std::span<const LinearShape>, const TuneOptions&) {
  return unsupported("this build has no CUDA code: build with FOVEA_BUILD_CUDA=1 ./run.sh");
}

}  // namespace fovea::tune
