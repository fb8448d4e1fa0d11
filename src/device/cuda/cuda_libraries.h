#pragma once
// NVIDIA's large libraries, opened at run time by the code that needs them.
#include <cstddef>
#include <string>

#include "device/dynamic_library.h"
#include "fovea/result_fwd.h"

namespace fovea {

/// Matrix products. Versions: 10000 * major + 100 * minor + patch.
struct CublasLt {
  DynamicLibrary library;
  size_t (*get_version)() = nullptr;

  static Result<CublasLt> open();
  size_t version() const { return get_version(); }
};

/// The run-time compiler.
struct Nvrtc {
  DynamicLibrary library;
  int (*get_version)(int* major, int* minor) = nullptr;  ///< 0 = success

  static Result<Nvrtc> open();
  /// 1000 * major + 10 * minor, as of CUDA itself.
  Result<int> version() const;
};

/// Version: 10000 * major + 100 * minor + patch.
struct Cudnn {
  DynamicLibrary library;
  size_t (*get_version)() = nullptr;

  static Result<Cudnn> open();
  size_t version() const { return get_version(); }
};

/// Collectives.
struct Nccl {
  DynamicLibrary library;
  int (*get_version)(int* version) = nullptr;  ///< 0 = success

  static Result<Nccl> open();
  /// 10000 * major + 100 * minor + patch.
  Result<int> version() const;
};

}  // namespace fovea
