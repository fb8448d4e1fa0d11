#include "plugin/convert.h"

namespace fovea::plugin {

void put_cuda_stream(Stream&, fovea_backend_stream&) {}

}  // namespace fovea::plugin
