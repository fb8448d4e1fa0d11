#pragma once
// C interface structs that begin with their size: programs built with an older header pass shorter ones, with
// a newer header longer ones.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "fovea/result.h"

namespace fovea {

/// Converts `given` to this library's version: missing fields are taken from `defaults`, unknown fields must
/// be zero. Bytes past the struct's stated size are not read. `first_size`, the minimum, is the size of the
/// struct's first version.
template <class T>
Result<T> read_struct(const T* given, const T& defaults, size_t first_size, const std::string& name) {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, size) == 0);
  if (given == nullptr) return invalid(name + " is null");
  uint32_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  if (size < first_size)
    return invalid(name + "->size is " + std::to_string(size) + "; it must be sizeof(" + name + "), " +
                   std::to_string(sizeof(T)) + " here and at least " + std::to_string(first_size));
  // Larger than any struct will be: detects an uninitialised size.
  constexpr uint32_t kMost = 4096;
  if (size > kMost)
    return invalid(name + "->size is " + std::to_string(size) + "; it must be sizeof(" + name + "), " +
                   std::to_string(sizeof(T)) + " here");
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < size; ++i)
    if (bytes[i] != 0)
      return unsupported(name + " has " + std::to_string(size) + " bytes with a field at byte " +
                         std::to_string(i) + " that this library, whose struct has " +
                         std::to_string(sizeof(T)) +
                         ", does not know: update the library, or leave the field zero");
  T known = defaults;
  std::memcpy(&known, given, std::min<size_t>(size, sizeof(T)));
  return known;
}

}  // namespace fovea
