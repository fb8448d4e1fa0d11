// Linear layers of quantised weights by mma.sync, for every architecture from sm_80 on: a CTA computes a few
// panels for up to 64 rows, as codes/stream.cuh does.
#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/codes/stream.cuh"
#include "kernels/cuda/linear/codes_epilogue.cuh"
#include "kernels/cuda/linear/launchers.h"
#include "kernels/cuda/tiles/dependent_launch.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda {
namespace {

struct CodesMmaParams {
  const uint16_t* x;
  const uint8_t* weight;
  const float* scales;
  int64_t x_stride;
  int k, panels, columns;  ///< CTAs for each row tile
  bool gated, constant_weight, late_dependents;
  EpilogueParams epilogue;
};

template <int kTiles, int kWarps, bool kScaled>
__global__ void __launch_bounds__(32 * kWarps, 1) codes_mma_linear(const __grid_constant__ CodesMmaParams p) {
  using Stream = CodeStream<WeightCode::e4m3, kTiles, kWarps, true>;
  extern __shared__ __align__(128) std::byte memory[];
  if (!p.late_dependents) grid_launch_dependents();
  const int tile = static_cast<int>(blockIdx.x);
  const int first_row = tile / p.columns * Stream::kRows;
  const int panel = tile % p.columns * Stream::kWarps + static_cast<int>(threadIdx.x) / 32;
  const bool idle = panel >= p.panels;  // reads the last panel for nothing
  const int64_t blocks = packed_blocks(p.k);
  const uint8_t* codes = p.weight + (idle ? p.panels - 1 : panel) * blocks * Stream::Block::kBytes;
  if (!p.constant_weight) grid_dependency_wait();
  Stream stream;
  stream.begin(shared_address(memory), codes, p.k);
  grid_dependency_wait();
  if (p.late_dependents) grid_launch_dependents();
#pragma unroll
  for (int i = 0; i < Stream::kRowsOfThread; ++i) {
    const int row = first_row + Stream::row_of(i);
    const bool exists = row < p.epilogue.rows;
    stream.set_row(i, p.x + (exists ? row : 0) * p.x_stride, exists);
  }
  float sums[kTiles][4];
  const float* scales = p.scales + panel * ((blocks + 1) / 2) * 2;
  stream.template run<kScaled>(
      sums, [&](int pair, int high) { return idle ? 0.0f : __ldg(scales + 2 * pair + high); });
  if (idle) return;
  const CodesEpilogue<kTiles> epilogue{
      p.epilogue, kScaled ? nullptr : p.scales, p.gated, panel, first_row, p.epilogue.rows};
  epilogue.run(reinterpret_cast<float(&)[4 * kTiles]>(sums));
}

template <int kTiles, int kWarps, bool kScaled>
Status launch(CodesMmaParams p, cudaStream_t stream) {
  using Stream = CodeStream<WeightCode::e4m3, kTiles, kWarps, true>;
  const auto kernel = codes_mma_linear<kTiles, kWarps, kScaled>;
  p.columns = (p.panels + kWarps - 1) / kWarps;
  const int64_t ctas = int64_t{p.columns} * ((p.epilogue.rows + Stream::kRows - 1) / Stream::kRows);
  if (ctas > INT32_MAX)
    return invalid("a linear layer of " + std::to_string(p.epilogue.rows) + " rows; run it in parts");
  FOVEA_CUDA_TRY(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Stream::kSharedBytes));
  LaunchShape shape;
  shape.ctas = static_cast<unsigned>(ctas), shape.threads = Stream::kThreads;
  shape.shared_bytes = Stream::kSharedBytes;
  FOVEA_CUDA_TRY(launch_dependent(kernel, shape, stream, p));
  return {};
}

template <int kTiles>
Status launch(const CodesMmaParams& p, bool scaled, int multiprocessors, cudaStream_t stream) {
  if (p.panels <= 2 * multiprocessors)
    return scaled ? launch<kTiles, 2, true>(p, stream) : launch<kTiles, 2, false>(p, stream);
  return scaled ? launch<kTiles, 3, true>(p, stream) : launch<kTiles, 3, false>(p, stream);
}

}  // namespace

Status launch_codes_mma(const LinearParams& p, int multiprocessors, cudaStream_t stream) {
  const bool gated = p.epilogue == LinearEpilogue::gated;
  CodesMmaParams a{};
  a.x = static_cast<const uint16_t*>(p.x);
  a.weight = static_cast<const uint8_t*>(p.weight);
  a.scales = p.scales;
  a.x_stride = p.x_stride;
  a.k = static_cast<int>(p.k);
  a.panels = static_cast<int>(packed_panels(p.n, gated));
  a.gated = gated;
  a.constant_weight = p.constant_weight;
  a.late_dependents = p.late_dependents;
  a.epilogue = make_epilogue(p);
  if (p.rows <= 16) return launch<2>(a, p.block_scales, multiprocessors, stream);
  if (p.rows <= 32) return launch<4>(a, p.block_scales, multiprocessors, stream);
  return launch<8>(a, p.block_scales, multiprocessors, stream);
}

}  // namespace fovea::cuda
