#include "backends/cuda/launch.h"

#include "fovea/result.h"
#include "kernels/cuda/mla/launch.h"
#include "kernels/cuda/portable/launch.h"
#include "kernels/cuda/simt/launch.h"
#include "kernels/cuda/sm80/launch.h"
#include "kernels/cuda/sm90/launch.h"

namespace fovea::cuda {

Status launch(const KernelChoice& choice, const AttentionParams& params, int max_items, CUstream_st* stream,
              LaunchRecord& record, const sm90::WidenSpace* space) {
  switch (choice.family) {
    case Family::sm80: return sm80::launch(choice.kernel, params, max_items, stream, &record);
    case Family::simt: return simt::launch(choice.kernel, params, max_items, stream, &record);
    case Family::sm90: return sm90::launch(choice.kernel, params, max_items, stream, &record, space);
    case Family::mla_sm80: return mla::launch_sm80(choice.kernel, params, max_items, stream, &record);
    case Family::mla_sm90: return mla::launch_sm90(choice.kernel, params, max_items, stream, &record);
    case Family::mla_sparse_sm80:
      return mla::launch_sparse_sm80(choice.kernel, params, max_items, stream, &record);
    case Family::mla_sparse_sm90:
      return mla::launch_sparse_sm90(choice.kernel, params, max_items, stream, &record);
    case Family::portable: return portable::launch(choice.kernel, params, max_items, stream, &record);
  }
  return Error{ErrorCode::internal, "a family of CUDA kernels that does not exist"};
}

}  // namespace fovea::cuda
