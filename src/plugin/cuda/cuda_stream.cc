#include "device/cuda/cuda_stream.h"

#include "device/stream.h"
#include "plugin/convert.h"

namespace fovea::plugin {

void put_cuda_stream(Stream& stream, fovea_backend_stream& out) {
  out.cuda_device = stream.cuda().device();
  out.cuda_stream = stream.cuda().handle();
}

}  // namespace fovea::plugin
