#include <algorithm>
#include <atomic>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/linear/launchers.h"
#include "kernels/cuda/linear/wgmma_kernels.h"
#include "kernels/cuda/tiles/dependent_launch.h"
#include "kernels/cuda/tiles/map_stride.h"
#include "kernels/cuda/tiles/tensor_map.h"

namespace fovea::cuda {
namespace {

CUtensorMapDataType element(DType dtype) {
  return dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

Status encode_x(const LinearParams& p, const WgmmaPlan& plan, WgmmaParams& a) {
  a.x_flat = p.k % kBlockInputs != 0;
  a.x_box_rows = plan.x_rows;
  a.x_box_blocks = a.x_flat ? 1 : plan.blocks;
  if (plan.share == ClusterShare::x) {
    if (plan.blocks > 1)
      a.x_box_blocks = plan.blocks / 2;
    else
      a.x_box_rows = plan.x_rows / 2;
  }
  const auto rows = static_cast<uint64_t>(p.rows), k = static_cast<uint64_t>(p.k);
  const uint64_t stride = map_stride(p.x_stride * 2, rows);
  const auto box_rows = static_cast<uint32_t>(a.x_box_rows);
  const auto box_blocks = static_cast<uint32_t>(a.x_box_blocks);
  constexpr uint64_t kInputs = kBlockInputs;
  if (a.x_flat)
    return encode_tensor_map({element(p.dtype), p.x, {k, rows, 1}, {stride, 16}, {kBlockInputs, box_rows, 1}},
                             a.x);
  return encode_tensor_map({element(p.dtype),
                            p.x,
                            {kInputs, rows, k / kInputs},
                            {stride, kInputs * 2},
                            {kBlockInputs, box_rows, box_blocks}},
                           a.x);
}

/// The packed weight as [k blocks, panels, 256 words of 8 bytes]; a box of `units` units.
Status encode_weights(const LinearParams& p, const WgmmaPlan& plan, int units, CUtensorMap& map) {
  const auto blocks = static_cast<uint64_t>(packed_blocks(p.k));
  const auto panels = static_cast<uint64_t>(packed_panels(p.n, p.epilogue == LinearEpilogue::gated));
  const auto width = static_cast<uint32_t>(plan.unit_bytes() / 8);
  const uint64_t block_bytes = plan.codes ? code_block_bytes(p.code) : kBlockBytes;
  const auto height = static_cast<uint32_t>(plan.halves ? 1 : units);
  const auto depth = static_cast<uint32_t>(plan.blocks);
  return encode_tensor_map({CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
                            p.weight,
                            {block_bytes / 8, panels, blocks},
                            {blocks * block_bytes, block_bytes},
                            {width, height, depth},
                            CU_TENSOR_MAP_SWIZZLE_NONE},
                           map);
}

Status fill(const LinearParams& p, const WgmmaPlan& plan, WgmmaParams& a) {
  const bool gated = p.epilogue == LinearEpilogue::gated;
  FOVEA_RETURN_IF_ERROR(encode_x(p, plan, a));
  const int box_units = plan.share == ClusterShare::weights ? plan.units / 2 : plan.units;
  FOVEA_RETURN_IF_ERROR(encode_weights(p, plan, box_units, a.weights));
  FOVEA_RETURN_IF_ERROR(encode_weights(p, plan, std::max(plan.units - 1, 1), a.fewer));
  a.epilogue = make_epilogue(p);
  a.k_blocks = static_cast<int>(packed_blocks(p.k));
  a.units = static_cast<int>(packed_panels(p.n, gated)) * (plan.halves ? 2 : 1);
  a.part_units = plan.units;
  a.parts = plan.parts, a.row_tiles = plan.row_tiles, a.raster = plan.raster;
  a.blocks = plan.blocks, a.stages = plan.stages;
  a.x_rows = plan.x_rows, a.x_bytes = plan.x_bytes();
  a.stage_bytes = plan.stage_bytes();
  a.share = plan.share;
  a.halves = plan.halves, a.even = plan.even;
  a.stream_weights = plan.row_tiles == 1;
  a.constant_weight = p.constant_weight;
  a.early_stages = static_cast<int>(std::clamp<int64_t>(p.early_bytes / plan.stage_bytes(), 1, plan.stages));
  a.late_dependents = p.late_dependents;
  a.unit_bytes = plan.unit_bytes();
  a.scales = p.scales;
  a.gated = gated;
  return {};
}

/// Lets a kernel use more than 48 KiB of shared memory, once for each kernel and device.
Status prepare(WgmmaKernel kernel, int index) {
  constexpr int kDevices = 64, kKernels = 96, kMost = 232448 - 1024;
  static std::atomic<bool> prepared[kDevices][kKernels];
  int device = 0;
  FOVEA_CUDA_TRY(cudaGetDevice(&device));
  const bool known = device < kDevices;
  if (known && prepared[device][index].load(std::memory_order_acquire)) return {};
  FOVEA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMost));
  if (known) prepared[device][index].store(true, std::memory_order_release);
  return {};
}

int kernel_index(const WgmmaPlan& plan, bool f16, bool gated) {
  int width = 0;
  while (kWgmmaColumns[width] != plan.columns)
    ++width;
  return width * 8 + (plan.groups - 1) * 4 + (f16 ? 2 : 0) + (gated ? 1 : 0);
}

Status launch(WgmmaKernel kernel, const WgmmaPlan& plan, const WgmmaParams& a, cudaStream_t stream) {
  LaunchShape shape;
  shape.ctas = static_cast<unsigned>(plan.ctas);
  const int helpers = plan.code_stages > 0 ? 128 * (kWidenGroups + 1) : plan.codes ? 128 : 32;
  shape.threads = static_cast<unsigned>(128 * plan.groups + helpers);
  shape.shared_bytes = static_cast<size_t>(plan.shared_bytes);
  shape.cluster = static_cast<unsigned>(plan.cluster());
  FOVEA_CUDA_TRY(launch_dependent(kernel, shape, stream, a));
  return {};
}

}  // namespace

Status launch_wgmma_linear(const LinearParams& p, const WgmmaPlan& plan, cudaStream_t stream) {
  const bool gated = p.epilogue == LinearEpilogue::gated, f16 = p.dtype == DType::f16;
  WgmmaParams a;
  FOVEA_RETURN_IF_ERROR(fill(p, plan, a));
  const WgmmaKernel kernel = (f16 ? wgmma_kernel_f16 : wgmma_kernel_bf16)(plan.columns, plan.groups, gated);
  if (kernel == nullptr)
    return Error{ErrorCode::internal, "a linear kernel that the plan asks for is missing"};
  FOVEA_RETURN_IF_ERROR(prepare(kernel, kernel_index(plan, f16, gated)));
  return launch(kernel, plan, a, stream);
}

Status launch_codes_wgmma(const LinearParams& p, int multiprocessors, cudaStream_t stream) {
  const bool gated = p.epilogue == LinearEpilogue::gated;
  const WgmmaPlan plan = plan_codes(p.rows, p.n, gated, p.block_scales, multiprocessors, p.kernel);
  WgmmaParams a;
  FOVEA_RETURN_IF_ERROR(fill(p, plan, a));
  const int products = plan.units > 8 ? 2 : 1;
  const WgmmaKernel kernel = wgmma_kernel_codes(plan.columns, products, p.block_scales);
  int width = 0;
  while (8 << width < plan.columns)
    ++width;
  FOVEA_RETURN_IF_ERROR(
      prepare(kernel, 48 + width * 2 + (p.block_scales ? 1 : 0) + (products == 2 ? 10 : 0)));
  return launch(kernel, plan, a, stream);
}

Status launch_codes_widened(const LinearParams& p, int multiprocessors, cudaStream_t stream) {
  const bool gated = p.epilogue == LinearEpilogue::gated;
  const WgmmaPlan plan = plan_widened(p.rows, p.n, gated, multiprocessors);
  WgmmaParams a;
  FOVEA_RETURN_IF_ERROR(fill(p, plan, a));
  a.stage_bytes = plan.blocks * plan.units * kBlockBytes;
  a.x_stages = plan.x_stages, a.code_stages = plan.code_stages;
  const WgmmaKernel kernel = wgmma_kernel_widened(plan.columns, plan.blocks, gated, p.block_scales);
  if (kernel == nullptr)
    return Error{ErrorCode::internal, "a linear kernel that the plan asks for is missing"};
  const int wide = plan.columns == 64 ? 8 : 0, few = plan.blocks == 4 ? 4 : 0;
  FOVEA_RETURN_IF_ERROR(prepare(kernel, 80 + wide + few + (gated ? 2 : 0) + (p.block_scales ? 1 : 0)));
  return launch(kernel, plan, a, stream);
}

}  // namespace fovea::cuda
