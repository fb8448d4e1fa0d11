#include "device/cuda/cuda_error.h"

#include <string>
#include <utility>

#include "fovea/result.h"

namespace fovea {
namespace {

/// What the machine lacks, for codes that imply it; else empty.
std::string missing(cudaError_t code) {
  switch (code) {
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary: {
      int driver = 0, runtime = 0;
      cudaDriverGetVersion(&driver);
      cudaRuntimeGetVersion(&runtime);
      const std::string needs =
          "this build needs one for CUDA " + cuda_version_text(runtime / 1000 * 1000) + " or newer";
      if (driver == 0) return "no NVIDIA driver found; " + needs;
      return "the NVIDIA driver is for CUDA " + cuda_version_text(driver) + "; " + needs +
             ": update the driver";
    }
    case cudaErrorNoDevice:
      return "the NVIDIA driver offers no device; check the machine and CUDA_VISIBLE_DEVICES";
    case cudaErrorSystemDriverMismatch:
      return "the NVIDIA driver library and kernel module have different versions; restart the machine";
    case cudaErrorNoKernelImageForDevice:
      return "this build has no code for the device; it needs compute capability 8.0 or more";
    default: return "";
  }
}

}  // namespace

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Error cuda_error(cudaError_t code, std::string_view expression, std::string_view file, int line) {
  if (const size_t root = file.rfind("src/"); root != std::string_view::npos) file.remove_prefix(root);
  std::string message;
  const std::string lack = missing(code);
  if (!lack.empty()) message = lack + " (";
  message.append(expression).append(" failed at ").append(file).append(":").append(std::to_string(line));
  message.append(": ")
      .append(cudaGetErrorName(code))
      .append(" (")
      .append(std::to_string(static_cast<int>(code)));
  message.append("): ").append(cudaGetErrorString(code));
  if (!lack.empty()) message += ")";
  cudaGetLastError();  // a code that is not sticky must not surface at the next check
  if (code == cudaErrorMemoryAllocation) return {ErrorCode::out_of_memory, std::move(message)};
  return {lack.empty() ? ErrorCode::internal : ErrorCode::unsupported, std::move(message)};
}

}  // namespace fovea
