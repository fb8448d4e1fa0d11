#pragma once
// A 64-bit fingerprint of values (FNV-1a), for change detection. Not cryptographic.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace fovea {

class Digest {
 public:
  /// Numbers and enumerations are hashed by their bytes. Values with a length are prefixed with it, so that
  /// different sequences of values never produce the same bytes.
  template <class T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  Digest& add(T value) {
    return bytes(&value, sizeof value);
  }
  Digest& add(std::string_view text) {
    add(text.size());
    return bytes(text.data(), text.size());
  }
  Digest& add(const std::string& text) { return add(std::string_view(text)); }
  Digest& add(const char* text) { return add(std::string_view(text)); }
  template <class T>
  Digest& add(const std::optional<T>& value) {
    add(value.has_value());
    return value ? add(*value) : *this;
  }
  template <class T>
  Digest& add(const std::vector<T>& values) {
    add(values.size());
    for (const T& value : values)
      add(value);
    return *this;
  }
  uint64_t value() const { return value_; }

 private:
  Digest& bytes(const void* data, size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < size; ++i)
      value_ = (value_ ^ bytes[i]) * 0x100000001b3;
    return *this;
  }

  uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace fovea
