#pragma once
// The safetensors format: 8 bytes little-endian N, a JSON header of N bytes, then the tensors' bytes without
// holes. Files are untrusted: every rule of the format is checked before an entry is used.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/dtype.h"
#include "fovea/result_fwd.h"

namespace fovea {

/// Element types that the format knows; this engine computes with F32, F16 and BF16 only.
struct StoredType {
  std::string_view name;  ///< as in the file, "BF16"
  int bits = 0;           ///< of one element

  /// The matching DType, if supported.
  std::optional<DType> dtype() const;
};

struct SafetensorsEntry {
  std::string name;
  StoredType type;
  std::vector<uint64_t> shape;  ///< empty = scalar
  uint64_t begin = 0, end = 0;  ///< bytes, from the start of the file
};

inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;  ///< bytes, the format's own limit
inline constexpr size_t kMaxSafetensorsEntries = 1'000'000;     ///< of one file, ours
inline constexpr size_t kMaxTensorRank = 16;                    ///< ours

/// Checks a whole file and returns its entries sorted by name. `path` is for messages. Rejects: a file or
/// header that is too short or too long, a header that does not begin with '{' or is not the object that the
/// format requires, duplicate keys, unknown types, sizes that overflow or disagree with the offsets,
/// overlaps, holes, and bytes after the last tensor.
Result<std::vector<SafetensorsEntry>> parse_safetensors(std::span<const std::byte> file,
                                                        const std::string& path);

/// "[2, 3]"
std::string shape_string(std::span<const uint64_t> shape);

}  // namespace fovea
