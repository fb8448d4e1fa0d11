#include "kernels/cuda/experts/experts.h"

#include <algorithm>
#include <string>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/experts/group.h"
#include "kernels/cuda/rows/route.h"

namespace fovea::cuda {
namespace {

// More rows are computed in several passes: the results in fp32 before the weighted sum would take gigabytes.
constexpr int64_t kPassRows = 4096;
// Rows for each expert, on average, from which on tiles of 128 rows are faster (H200).
constexpr int64_t kWideRows = 16, kLargeRows = 32, kWideCodeRows = 48;

std::string str(int64_t x) {
  return std::to_string(x);
}

/// The scratch's parts for one pass.
struct Scratch {
  Grouping groups;
  void* activations = nullptr;  // [pairs, intermediate]
  float* results = nullptr;     // [pairs, hidden]
  int64_t bytes = 0;

  /// With a null `base`, only computes the size.
  Scratch(const ExpertShape& shape, int64_t rows, std::byte* base) {
    const int64_t pairs = rows * shape.experts_per_token;
    const auto take = [&](int64_t size) {
      std::byte* part = base == nullptr ? nullptr : base + bytes;
      bytes += (size + 255) / 256 * 256;
      return part;
    };
    const auto ints = [&](int64_t count) { return reinterpret_cast<int32_t*>(take(4 * count)); };
    groups.num_experts = shape.num_experts;
    groups.begin = ints(shape.num_experts + 1);
    groups.row = ints(pairs);
    groups.pair = ints(pairs);
    groups.position = ints(pairs);
    activations = take(pairs * shape.intermediate * static_cast<int64_t>(size_of(shape.dtype)));
    results = reinterpret_cast<float*>(take(pairs * shape.hidden * 4));
  }
};

Status check_matrices(const char* name, const ExpertMatrices& m, DType dtype, int64_t n, int64_t k,
                      bool gated) {
  if (m.data == nullptr) return invalid("experts: " + std::string(name) + " must not be null");
  if (m.code != WeightCode::none && dtype != DType::bf16)
    return unsupported("experts: quantised " + std::string(name) + " with " + std::string(to_string(dtype)) +
                       " activations; bfloat16 is supported");
  if (m.code == WeightCode::mxfp4 && k % 32 != 0)
    return invalid("experts: MXFP4 " + std::string(name) + " of " + str(k) +
                   " inputs; multiples of 32 are allowed");
  const int64_t least = m.code != WeightCode::none ? code_bytes(m.code, n, k, gated)
                        : dtype == DType::f32      ? 4 * n * k
                                                   : packed_expert_bytes(n, k, gated);
  if (m.stride < least || m.stride % 16 != 0 || reinterpret_cast<uintptr_t>(m.data) % 16 != 0)
    return invalid("experts: " + std::string(name) + " has a matrix every " + str(m.stride) +
                   " bytes; it needs at least " + str(least) + ", a multiple of 16 and 16-byte alignment");
  return {};
}

Status check(const ExpertsParams& p) {
  const ExpertShape& s = p.shape;
  const int most = std::min(kMaxExpertsPerToken, s.num_experts + p.identity_experts);
  if (s.num_experts < 1 || s.num_experts > kMaxExperts || p.identity_experts < 0 || s.experts_per_token < 1 ||
      s.experts_per_token > most)
    return invalid("experts: " + str(s.experts_per_token) + " of " + str(s.num_experts) + " experts; up to " +
                   str(kMaxExpertsPerToken) + " of up to " + str(kMaxExperts) + " are supported");
  const bool packed = s.dtype != DType::f32;
  if (s.hidden < 1 || s.intermediate < 1 || s.hidden > 1 << 20 || s.intermediate > 1 << 20 ||
      (packed && (s.hidden % 8 != 0 || s.intermediate % 8 != 0)))
    return invalid("experts: hidden " + str(s.hidden) + ", intermediate " + str(s.intermediate) +
                   "; 16-bit weights need multiples of 8");
  if (p.identity_experts > 0 && (p.scales_input || p.out_dtype != s.dtype))
    return unsupported("experts: " + str(p.identity_experts) +
                       " that return their input; they need outputs of the input's dtype, and weights that "
                       "multiply the output");
  if (p.rows < 0) return invalid("experts: " + str(p.rows) + " rows");
  if (p.adapters != nullptr && p.scales_input)
    return unsupported("experts: adapters of experts whose weights multiply the input");
  const auto coded = [](const ExpertMatrices& m) { return m.code != WeightCode::none; };
  if (p.adapters != nullptr && (coded(p.gate_up) || coded(p.down)))
    return unsupported(
        "experts: adapters of experts with quantised weights; 16-bit and float32 are supported");
  if (p.rows == 0) return {};
  if (p.x == nullptr || p.experts == nullptr || p.weights == nullptr || p.out == nullptr ||
      p.scratch == nullptr)
    return invalid("experts: x, experts, weights, out and scratch must not be null");
  if (p.x_stride < s.hidden || p.out_stride < s.hidden || (p.shared != nullptr && p.shared_stride < s.hidden))
    return invalid("experts: rows of x, shared and out must be at least " + str(s.hidden) +
                   " elements apart");
  if (packed && (p.x_stride % 8 != 0 || reinterpret_cast<uintptr_t>(p.x) % 16 != 0))
    return invalid("experts: rows of x must be 16-byte aligned");
  if (p.shared != nullptr && p.shared_dtype != DType::f32 && p.shared_dtype != p.out_dtype)
    return invalid("experts: shared must be float32 or of out's dtype");
  if (reinterpret_cast<uintptr_t>(p.scratch) % 256 != 0 || p.scratch_bytes < experts_scratch(s, p.rows))
    return invalid("experts: " + str(p.scratch_bytes) + " bytes of scratch; " + str(p.rows) + " rows need " +
                   str(experts_scratch(s, p.rows)) + ", 256-byte aligned");
  FOVEA_RETURN_IF_ERROR(check_matrices("gate_up", p.gate_up, s.dtype, 2 * s.intermediate, s.hidden, true));
  return check_matrices("down", p.down, s.dtype, s.hidden, s.intermediate, false);
}

Status run_product(const GroupedProduct& product, bool gated, const GroupedSize& size, ExpertKernel kernel,
                   cudaStream_t stream) {
  if (size.dtype == DType::f32) return launch_grouped_float(product, gated, size, stream);
  if (kernel == ExpertKernel::wide && !size.has_wgmma)
    return unsupported("experts: the wide kernel needs compute capability 9.0; use automatic");
  if (product.weights.code != WeightCode::none) {
    const bool many = !product.groups.direct() && size.has_wgmma &&
                      size.pairs >= kWideCodeRows * product.groups.num_experts;
    const bool wide = kernel == ExpertKernel::wide || (kernel == ExpertKernel::automatic && many);
    return (wide ? launch_grouped_wide_codes : launch_grouped_small_codes)(product, gated, size, stream);
  }
  if (kernel == ExpertKernel::automatic) {
    const bool many = !product.groups.direct() &&
                      size.pairs >= (size.has_wgmma ? kWideRows : kLargeRows) * product.groups.num_experts;
    kernel = !many ? ExpertKernel::small : size.has_wgmma ? ExpertKernel::wide : ExpertKernel::large;
  }
  if (kernel == ExpertKernel::wide) return launch_grouped_wide(product, gated, size, stream);
  if (kernel == ExpertKernel::large) return launch_grouped_large(product, gated, size, stream);
  return launch_grouped_small(product, gated, size, stream);
}

/// Adds what a product needs of the adapters and queues their shares.
Status add_shares(ExpertLoraParams a, const ExpertsParams& p, int64_t first, int64_t rows,
                  const int32_t* position, GroupedProduct& product, CudaStream& stream) {
  a.slot += first;
  a.experts = product.groups.experts;
  a.num_experts = p.shape.num_experts;
  a.experts_per_token = p.shape.experts_per_token;
  a.rows = rows;
  a.x = product.x;
  a.x_stride = product.x_stride;
  a.position = position;
  product.shares = a.shares;
  return launch_expert_lora(a, stream);
}

/// Rows [first, first + rows).
Status run_pass(const ExpertsParams& p, int64_t first, int64_t rows, const GroupedSize& device,
                CudaStream& queue) {
  const cudaStream_t stream = queue.handle();
  const ExpertShape& s = p.shape;
  Scratch scratch(s, rows, static_cast<std::byte*>(p.scratch));
  const auto at = [&](const void* data, DType dtype, int64_t stride) {
    return data == nullptr
               ? nullptr
               : static_cast<const std::byte*>(data) + first * stride * static_cast<int64_t>(size_of(dtype));
  };
  const int32_t* ids = p.experts + first * s.experts_per_token;
  const float* weights = p.weights + first * s.experts_per_token;
  const int64_t pairs = rows * s.experts_per_token;
  Grouping& groups = scratch.groups;
  groups.experts = ids, groups.pairs = static_cast<int>(pairs),
  groups.experts_per_token = s.experts_per_token;
  const bool direct = s.dtype != DType::f32 && pairs <= kDirectPairs && p.kernel == ExpertKernel::automatic &&
                      p.adapters == nullptr;
  if (direct)
    groups.begin = groups.row = groups.pair = groups.position = nullptr;
  else
    FOVEA_RETURN_IF_ERROR(launch_group(groups, stream));

  GroupedSize size = device;
  size.pairs = pairs, size.most_rows = rows;
  GroupedProduct up;
  up.groups = scratch.groups;
  up.x = at(p.x, s.dtype, p.x_stride), up.x_stride = p.x_stride, up.gathers = true;
  up.weights = p.gate_up;
  up.inputs = static_cast<int>(s.hidden), up.outputs = static_cast<int>(s.intermediate);
  up.scales = p.scales_input ? weights : nullptr;
  LinearParams gate;
  gate.epilogue = LinearEpilogue::gated, gate.activation = p.f, gate.limit = p.limit;
  up.gate = make_epilogue(gate);
  up.out = scratch.activations;
  if (p.adapters != nullptr)
    FOVEA_RETURN_IF_ERROR(add_shares(p.adapters->gate_up, p, first, rows, nullptr, up, queue));
  FOVEA_RETURN_IF_ERROR(run_product(up, true, size, p.kernel, stream));

  GroupedProduct down;
  down.groups = scratch.groups;
  down.x = scratch.activations, down.x_stride = s.intermediate;
  down.weights = p.down;
  down.inputs = static_cast<int>(s.intermediate), down.outputs = static_cast<int>(s.hidden);
  down.out = scratch.results;
  if (p.adapters != nullptr)
    FOVEA_RETURN_IF_ERROR(add_shares(p.adapters->down, p, first, rows, scratch.groups.position, down, queue));
  FOVEA_RETURN_IF_ERROR(run_product(down, false, size, p.kernel, stream));

  CombineParams c;
  c.groups = scratch.groups;
  c.experts = ids, c.weights = p.scales_input ? nullptr : weights, c.experts_per_token = s.experts_per_token;
  c.results = scratch.results;
  c.shared = at(p.shared, p.shared_dtype, p.shared_stride), c.shared_dtype = p.shared_dtype;
  c.shared_stride = p.shared_stride;
  if (p.identity_experts > 0) {
    c.x = at(p.x, s.dtype, p.x_stride), c.x_stride = p.x_stride;
    c.identity_experts = p.identity_experts;
  }
  c.out = const_cast<std::byte*>(at(p.out, p.out_dtype, p.out_stride)), c.out_dtype = p.out_dtype;
  c.out_stride = p.out_stride, c.rows = rows, c.hidden = static_cast<int>(s.hidden);
  return launch_combine(c, stream);
}

}  // namespace

int64_t experts_scratch(const ExpertShape& shape, int64_t max_rows) {
  return Scratch(shape, std::min(max_rows, kPassRows), nullptr).bytes;
}

Status launch_experts(const ExpertsParams& p, CudaStream& stream) {
  FOVEA_RETURN_IF_ERROR(check(p));
  GroupedSize size;
  size.dtype = p.shape.dtype;
  int major = 0, minor = 0;
  FOVEA_CUDA_TRY(
      cudaDeviceGetAttribute(&size.multiprocessors, cudaDevAttrMultiProcessorCount, stream.device()));
  FOVEA_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, stream.device()));
  FOVEA_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, stream.device()));
  size.has_wgmma = major == 9 && minor == 0;
  const int64_t most = p.adapters != nullptr ? kAdapterPassRows : kPassRows;
  for (int64_t first = 0; first < p.rows; first += most)
    FOVEA_RETURN_IF_ERROR(run_pass(p, first, std::min(most, p.rows - first), size, stream));
  return {};
}

}  // namespace fovea::cuda
