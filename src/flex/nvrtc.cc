#include "flex/nvrtc.h"

#include <chrono>
#include <mutex>
#include <optional>

#include "base/printable.h"
#include "device/dynamic_library.h"

namespace fovea::flex {
namespace {

// The types of nvrtc.h.
using Handle = struct OpaqueProgram*;
using Code = int;

struct Nvrtc {
  DynamicLibrary library;
  Code (*version)(int*, int*) = nullptr;
  Code (*create)(Handle*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  Code (*destroy)(Handle*) = nullptr;
  Code (*compile)(Handle, int, const char* const*) = nullptr;
  Code (*cubin_size)(Handle, size_t*) = nullptr;
  Code (*cubin)(Handle, char*) = nullptr;
  Code (*log_size)(Handle, size_t*) = nullptr;
  Code (*log)(Handle, char*) = nullptr;
  const char* (*error_text)(Code) = nullptr;
};

Result<Nvrtc> open() {
  FOVEA_TRY(library,
            DynamicLibrary::open(
                "NVRTC, which compiles masks and scores for a GPU",
                {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"},
                "install it (CUDA's package cuda-nvrtc, or pip install nvidia-cuda-nvrtc and its folder in "
                "LD_LIBRARY_PATH), or run flex_attention on the CPU, which needs no compiler"));
  Nvrtc n{std::move(library)};
  FOVEA_RETURN_IF_ERROR(n.library.find("nvrtcVersion", n.version));
  FOVEA_RETURN_IF_ERROR(n.library.find("nvrtcCreateProgram", n.create));
  FOVEA_RETURN_IF_ERROR(n.library.find("nvrtcDestroyProgram", n.destroy));
  FOVEA_RETURN_IF_ERROR(n.library.find("nvrtcCompileProgram", n.compile));
  FOVEA_RETURN_IF_ERROR(n.library.find("nvrtcGetCUBINSize", n.cubin_size));
  FOVEA_RETURN_IF_ERROR(n.library.find("nvrtcGetCUBIN", n.cubin));
  FOVEA_RETURN_IF_ERROR(n.library.find("nvrtcGetProgramLogSize", n.log_size));
  FOVEA_RETURN_IF_ERROR(n.library.find("nvrtcGetProgramLog", n.log));
  FOVEA_RETURN_IF_ERROR(n.library.find("nvrtcGetErrorString", n.error_text));
  return n;
}

/// Opened once; a failure is tried again.
Result<const Nvrtc*> nvrtc() {
  static std::mutex mutex;
  static std::optional<Nvrtc> opened;
  const std::lock_guard lock(mutex);
  if (!opened) {
    FOVEA_TRY(n, open());
    opened.emplace(std::move(n));
  }
  return const_cast<const Nvrtc*>(&*opened);
}

Error failed(const Nvrtc& n, std::string_view what, Code code, const std::string& log = {}) {
  std::string message = "NVRTC can't " + std::string(what) + ": " + n.error_text(code);
  if (!log.empty()) message += ": " + printable(log, 600);
  return {ErrorCode::internal, message};
}

}  // namespace

Result<std::string> nvrtc_version() {
  FOVEA_TRY(n, nvrtc());
  int major = 0, minor = 0;
  if (const Code code = n->version(&major, &minor); code != 0) return failed(*n, "tell its version", code);
  return std::to_string(major) + "." + std::to_string(minor);
}

Result<Compiled> nvrtc_compile(const std::string& source, std::string_view arch) {
  FOVEA_TRY(n, nvrtc());
  const auto begin = std::chrono::steady_clock::now();
  Handle program = nullptr;
  if (const Code code = n->create(&program, source.c_str(), "flex_attention.cu", 0, nullptr, nullptr);
      code != 0)
    return failed(*n, "take the program", code);
  const std::string target = "--gpu-architecture=" + std::string(arch);
  const char* const options[] = {target.c_str(), "-std=c++17", "--restrict"};
  Result<Compiled> result = Compiled{};
  if (const Code code = n->compile(program, 3, options); code != 0) {
    std::string log;
    if (size_t size = 0; n->log_size(program, &size) == 0 && size > 1) {
      log.resize(size);
      n->log(program, log.data());
    }
    result = failed(*n, "compile for " + std::string(arch), code, log);
  } else if (size_t size = 0; n->cubin_size(program, &size) == 0 && size > 0) {
    result->cubin.resize(size);
    n->cubin(program, result->cubin.data());
  } else {
    result = Error{ErrorCode::internal, "NVRTC made no code for " + std::string(arch)};
  }
  n->destroy(&program);
  if (result)
    result->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace fovea::flex
