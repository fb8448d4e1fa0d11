#pragma once
// What a call returns to be freed with fovea_free(), and the text that it is given.
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "fovea/result.h"

namespace fovea::c_api {

/// A copy by malloc, with a NUL behind it. Throws std::bad_alloc.
inline char* returned_text(std::string_view text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  if (!text.empty()) std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

inline int32_t* returned_ids(std::span<const int32_t> ids) {
  auto* copy = static_cast<int32_t*>(std::malloc(ids.empty() ? 1 : ids.size_bytes()));
  if (copy == nullptr) throw std::bad_alloc();
  if (!ids.empty()) std::memcpy(copy, ids.data(), ids.size_bytes());
  return copy;
}

/// `bytes` of `text`; -1 = up to its NUL.
inline Result<std::string_view> given_text(const char* text, int64_t bytes, const std::string& name) {
  if (text == nullptr) return invalid(name + " is null");
  if (bytes < -1)
    return invalid("the size of " + name + " is " + std::to_string(bytes) + "; it must be -1 or more");
  return bytes < 0 ? std::string_view(text) : std::string_view(text, static_cast<size_t>(bytes));
}

/// `count` numbers at `data`.
template <class T>
Result<std::span<const T>> given_array(const T* data, size_t count, const std::string& name) {
  constexpr size_t kMost = size_t{1} << 40;  // more is an uninitialised field
  if (data == nullptr && count != 0) return invalid(name + " is null, and its count is not 0");
  if (count > kMost) return invalid("the count of " + name + " is " + std::to_string(count));
  return std::span<const T>(data, count);
}

/// Null = "".
inline std::string given_or_empty(const char* text) {
  return text == nullptr ? std::string() : std::string(text);
}

}  // namespace fovea::c_api
