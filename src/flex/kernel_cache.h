#pragma once
// Compiled kernels on disk, by what they were compiled from.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fovea::flex {

/// What a file must match. `version`: of this program and of the compiler.
struct KernelKey {
  uint64_t hash = 0;  ///< of the source text
  std::string arch, version;
};

/// $XDG_CACHE_HOME/fovea/flex, or that of ~/.cache; "" without a home.
std::string kernel_cache_folder();

/// The kernel of `key` in `folder`; nullopt if there is none. A file that is cut off, corrupt, of another
/// architecture or of another version is none either; `note` then receives one line about it.
std::optional<std::string> read_kernel(const std::string& folder, const KernelKey& key, std::string& note);
/// Writes it by rename, so that readers see a whole file. What fails is told in `note`, and is no error.
void write_kernel(const std::string& folder, const KernelKey& key, std::string_view cubin, std::string& note);

}  // namespace fovea::flex
