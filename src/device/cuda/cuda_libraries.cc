#include "device/cuda/cuda_libraries.h"

namespace fovea {
namespace {

std::string package(const char* name) {
  return "install " + std::string(name) + ", or put its folder into LD_LIBRARY_PATH";
}

Result<int> failed(const DynamicLibrary& library, const char* function, int code) {
  return Error{ErrorCode::internal,
               library.name() + ": " + function + " failed with code " + std::to_string(code)};
}

}  // namespace

Result<CublasLt> CublasLt::open() {
  FOVEA_TRY(library, DynamicLibrary::open("cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12"},
                                          package("CUDA's cuBLAS (libcublas)")));
  CublasLt out{std::move(library)};
  FOVEA_RETURN_IF_ERROR(out.library.find("cublasLtGetVersion", out.get_version));
  return out;
}

Result<Nvrtc> Nvrtc::open() {
  FOVEA_TRY(library, DynamicLibrary::open("NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12"},
                                          package("CUDA's NVRTC (cuda-nvrtc)")));
  Nvrtc out{std::move(library)};
  FOVEA_RETURN_IF_ERROR(out.library.find("nvrtcVersion", out.get_version));
  return out;
}

Result<int> Nvrtc::version() const {
  int major = 0, minor = 0;
  if (const int code = get_version(&major, &minor); code != 0) return failed(library, "nvrtcVersion", code);
  return 1000 * major + 10 * minor;
}

Result<Cudnn> Cudnn::open() {
  FOVEA_TRY(library, DynamicLibrary::open("cuDNN", {"libcudnn.so.9"}, package("cuDNN 9 (libcudnn9)")));
  Cudnn out{std::move(library)};
  FOVEA_RETURN_IF_ERROR(out.library.find("cudnnGetVersion", out.get_version));
  return out;
}

Result<Nccl> Nccl::open() {
  FOVEA_TRY(library, DynamicLibrary::open("NCCL", {"libnccl.so.2"}, package("NCCL 2 (libnccl2)")));
  Nccl out{std::move(library)};
  FOVEA_RETURN_IF_ERROR(out.library.find("ncclGetVersion", out.get_version));
  return out;
}

Result<int> Nccl::version() const {
  int version = 0;
  if (const int code = get_version(&version); code != 0) return failed(library, "ncclGetVersion", code);
  return version;
}

}  // namespace fovea
