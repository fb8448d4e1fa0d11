#include <cstdint>
#include <string>

#include "device/cuda/cuda_error.h"
#include "kernels/cuda/plan/plan-inl.h"
#include "kernels/cuda/plan/plan_launch.h"

namespace fovea::cuda {
namespace {

// One block: a scan over B = 256 sequences is then two barriers. 512 threads leave registers enough to spill
// nothing.
constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr size_t kWorkspaceAlignment = 64;

struct SharedStorage {
  // Prefix sums that binary searches walk: 30 cycles a step here, several hundred in L2.
  int64_t tiles[2048];
  int32_t seqs[4096];
  PlanStart starts[1024];
  PlanSums warps[kWarps];
  int max;
};

class DeviceBlock {
 public:
  static constexpr int32_t kScratchSeqs = 4096, kScratchTiles = 2048, kScratchStarts = 1024;

  __device__ explicit DeviceBlock(SharedStorage& shared) : shared_(shared) {}
  __device__ int32_t* scratch_seqs() const { return shared_.seqs; }
  __device__ int64_t* scratch_tiles() const { return shared_.tiles; }
  __device__ PlanStart* scratch_starts() const { return shared_.starts; }
  __device__ static int rank() { return static_cast<int>(threadIdx.x); }
  __device__ static int size() { return kThreads; }
  __device__ static void sync() { __syncthreads(); }

  __device__ int max(int x) const {
    if (rank() == 0) shared_.max = 0;
    __syncthreads();
    if (x > 0) atomicMax(&shared_.max, x);
    __syncthreads();
    return shared_.max;
  }

  /// The sum of the threads before this one.
  __device__ PlanSums exclusive_scan(const PlanSums& x, PlanSums& total) const {
    const Scan scan = scanned(shared_, x);
    total = scan.total;
    return scan.before;
  }

 private:
  struct Scan {
    PlanSums before, total;
  };

  // One copy of the code for all scans.
  __device__ __noinline__ static Scan scanned(SharedStorage& shared, PlanSums x) {
    const int lane = rank() % 32, warp = rank() / 32;
    const PlanSums inclusive = warp_scan(x, lane);
    __syncthreads();  // the sums of an earlier scan have been read
    if (lane == 31) shared.warps[warp] = inclusive;
    __syncthreads();
    const PlanSums warps = warp_scan(lane < kWarps ? shared.warps[lane] : PlanSums{}, lane);
    PlanSums before = from_lane(warps, (warp + 31) % 32);
    if (warp == 0) before = {};
    return {{before.a + inclusive.a - x.a, before.b + inclusive.b - x.b}, from_lane(warps, kWarps - 1)};
  }

  __device__ static PlanSums warp_scan(PlanSums x, int lane) {
    FOVEA_ROLLED
    for (int step = 1; step < 32; step *= 2) {
      const int64_t a = __shfl_up_sync(0xffffffffu, x.a, step), b = __shfl_up_sync(0xffffffffu, x.b, step);
      if (lane >= step) x = x + PlanSums{a, b};
    }
    return x;
  }

  __device__ static PlanSums from_lane(const PlanSums& x, int lane) {
    return {__shfl_sync(0xffffffffu, x.a, lane), __shfl_sync(0xffffffffu, x.b, lane)};
  }

  SharedStorage& shared_;
};

template <bool kPlainMask>
__global__ void __launch_bounds__(kThreads, 1)
    plan_kernel(const __grid_constant__ PlanPolicy policy, const __grid_constant__ PlanLayout layout,
                const __grid_constant__ PlanInput input, const __grid_constant__ PlanView out) {
  __shared__ SharedStorage shared;
  DeviceBlock block(shared);
  Planner<DeviceBlock, kPlainMask>(block, policy, layout, input, out).run();
}

}  // namespace

Status launch_plan(const PlanPolicy& policy, const PlanLayout& layout, const PlanInput& input,
                   Workspace workspace, CudaStream& stream) {
  FOVEA_RETURN_IF_ERROR(check_plan_input(policy, layout.limits, input));
  if (workspace.size() < layout.bytes)
    return invalid("the attention workspace has " + std::to_string(workspace.size()) +
                   " bytes; the limits need " + std::to_string(layout.bytes));
  if (reinterpret_cast<uintptr_t>(workspace.data()) % kWorkspaceAlignment != 0)
    return invalid("the attention workspace must be aligned to " + std::to_string(kWorkspaceAlignment) +
                   " bytes");
  const MaskSpec& mask = policy.mask;
  const bool plain = !mask.spans && mask.chunk == 0 && mask.sink_tokens == 0;
  const auto kernel = plain ? plan_kernel<true> : plan_kernel<false>;
  kernel<<<1, kThreads, 0, stream.handle()>>>(policy, layout, input, plan_view(layout, workspace.data()));
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace fovea::cuda
