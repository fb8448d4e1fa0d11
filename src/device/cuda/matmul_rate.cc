// The rate of a large bf16 matrix product by cuBLASLt, which is opened at run time: of what the device
// reaches with many rows.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_libraries.h"
#include "device/cuda/cuda_memory.h"
#include "device/gpu.h"

namespace fovea {
namespace {

// cuBLASLt's interface as far as it is used here; its headers are not needed to build.
constexpr int kCompute32F = 68, kRealF32 = 0, kRealBf16 = 14;
constexpr int kTransposeA = 3;  // attribute of a product
constexpr int kTransposed = 1;

struct Product {
  CublasLt lt;
  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  int (*make_product)(void** product, int compute, int scale) = nullptr;
  int (*set_attribute)(void* product, int attribute, const void* value, size_t bytes) = nullptr;
  int (*destroy_product)(void* product) = nullptr;
  int (*make_layout)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t stride) = nullptr;
  int (*destroy_layout)(void* layout) = nullptr;
  int (*multiply)(void* handle, void* product, const void* alpha, const void* a, void* a_layout,
                  const void* b, void* b_layout, const void* beta, const void* c, void* c_layout, void* d,
                  void* d_layout, const void* algorithm, void* workspace, size_t workspace_bytes,
                  cudaStream_t stream) = nullptr;

  static Result<Product> open() {
    FOVEA_TRY(lt, CublasLt::open());
    Product p{std::move(lt)};
    const DynamicLibrary& l = p.lt.library;
    FOVEA_RETURN_IF_ERROR(l.find("cublasLtCreate", p.create));
    FOVEA_RETURN_IF_ERROR(l.find("cublasLtDestroy", p.destroy));
    FOVEA_RETURN_IF_ERROR(l.find("cublasLtMatmulDescCreate", p.make_product));
    FOVEA_RETURN_IF_ERROR(l.find("cublasLtMatmulDescSetAttribute", p.set_attribute));
    FOVEA_RETURN_IF_ERROR(l.find("cublasLtMatmulDescDestroy", p.destroy_product));
    FOVEA_RETURN_IF_ERROR(l.find("cublasLtMatrixLayoutCreate", p.make_layout));
    FOVEA_RETURN_IF_ERROR(l.find("cublasLtMatrixLayoutDestroy", p.destroy_layout));
    FOVEA_RETURN_IF_ERROR(l.find("cublasLtMatmul", p.multiply));
    return p;
  }
};

using Owned = std::unique_ptr<void, int (*)(void*)>;

/// Fills with random numbers of small size: products of zeros run faster.
Status fill(const DeviceBuffer& buffer, CudaStream& stream) {
  std::vector<uint16_t> block(1 << 20);
  uint32_t state = 1;
  for (uint16_t& value : block) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<uint16_t>(0x3c00u | (state >> 16 & 0x80ffu));  // bf16, 0.008 to 0.03, either sign
  }
  const size_t bytes = block.size() * sizeof(uint16_t);
  for (size_t at = 0; at < buffer.size(); at += bytes)
    FOVEA_RETURN_IF_ERROR(stream.copy(buffer.data() + at, block.data(), std::min(bytes, buffer.size() - at)));
  return {};
}

}  // namespace

Result<double> measure_gpu_matmul_rate(int device, int64_t size, int repeats) {
  FOVEA_TRY(checked, open_cuda_device(device));
  const CurrentDevice current(checked.ordinal);
  FOVEA_TRY(lt, Product::open());
  FOVEA_TRY(stream, CudaStream::create(device));
  FOVEA_TRY(pool, DevicePool::create(device));
  const auto bytes = static_cast<size_t>(size * size) * sizeof(uint16_t);
  constexpr size_t kWorkspace = 64 << 20;
  FOVEA_TRY(a, pool.allocate(bytes, stream));
  FOVEA_TRY(b, pool.allocate(bytes, stream));
  FOVEA_TRY(d, pool.allocate(bytes, stream));
  FOVEA_TRY(workspace, pool.allocate(kWorkspace, stream));
  FOVEA_RETURN_IF_ERROR(fill(a, stream));
  FOVEA_RETURN_IF_ERROR(fill(b, stream));
  const auto check = [&](int code, const char* what) -> Status {
    if (code == 0) return {};
    return Error{ErrorCode::internal, std::string(what) + " failed with code " + std::to_string(code)};
  };
  void *handle = nullptr, *product = nullptr, *layout = nullptr;
  FOVEA_RETURN_IF_ERROR(check(lt.create(&handle), "cublasLtCreate"));
  const Owned owned_handle(handle, lt.destroy);
  FOVEA_RETURN_IF_ERROR(check(lt.make_product(&product, kCompute32F, kRealF32), "cublasLtMatmulDescCreate"));
  const Owned owned_product(product, lt.destroy_product);
  FOVEA_RETURN_IF_ERROR(check(lt.set_attribute(product, kTransposeA, &kTransposed, sizeof kTransposed),
                              "cublasLtMatmulDescSetAttribute"));
  const auto side = static_cast<uint64_t>(size);
  FOVEA_RETURN_IF_ERROR(
      check(lt.make_layout(&layout, kRealBf16, side, side, size), "cublasLtMatrixLayoutCreate"));
  const Owned owned_layout(layout, lt.destroy_layout);
  FOVEA_TRY(begin, CudaEvent::create(device, CudaEvent::Timing::on));
  FOVEA_TRY(end, CudaEvent::create(device, CudaEvent::Timing::on));
  const float one = 1, zero = 0;
  const auto multiply = [&] {
    return check(
        lt.multiply(handle, product, &one, a.data(), layout, b.data(), layout, &zero, d.data(), layout,
                    d.data(), layout, nullptr, workspace.data(), kWorkspace, stream.handle()),
        "cublasLtMatmul");
  };
  for (int i = 0; i < 3; ++i)
    FOVEA_RETURN_IF_ERROR(multiply());  // warms up
  FOVEA_RETURN_IF_ERROR(begin.record(stream));
  for (int i = 0; i < repeats; ++i)
    FOVEA_RETURN_IF_ERROR(multiply());
  FOVEA_RETURN_IF_ERROR(end.record(stream));
  FOVEA_RETURN_IF_ERROR(stream.synchronize());
  FOVEA_TRY(milliseconds, end.milliseconds_since(begin));
  const auto n = static_cast<double>(size);
  return repeats * 2 * n * n * n / (double{milliseconds} * 1e-3);
}

}  // namespace fovea
