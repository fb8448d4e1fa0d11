#pragma once
// Result<T>: a value or an Error. What a caller, a file or a client can cause is returned as an Error;
// exceptions never cross the public API.
#include <string>
#include <utility>
#include <variant>

#include "fovea/result_fwd.h"

namespace fovea {

enum class ErrorCode { invalid_argument, not_found, unsupported, out_of_memory, io, cancelled, internal };

/// One error. `message` is a single line: what was given, what is allowed and what to change.
struct Error {
  ErrorCode code = ErrorCode::invalid_argument;
  std::string message;
};

inline Error invalid(std::string message) {
  return {ErrorCode::invalid_argument, std::move(message)};
}
inline Error unsupported(std::string message) {
  return {ErrorCode::unsupported, std::move(message)};
}
inline Error io_error(std::string message) {
  return {ErrorCode::io, std::move(message)};
}
inline Error not_found(std::string message) {
  return {ErrorCode::not_found, std::move(message)};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return error_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const Error& error() const& { return std::get<1>(error_); }
  Error&& error() && { return std::get<1>(std::move(error_)); }

 private:
  std::variant<std::monostate, Error> error_;
};

}  // namespace fovea

#define FOVEA_CONCAT_INNER(a, b) a##b
#define FOVEA_CONCAT(a, b) FOVEA_CONCAT_INNER(a, b)

/// Declares `var` from a Result expression, or returns its error from the enclosing function.
#define FOVEA_TRY(var, expr)                                                                             \
  auto FOVEA_CONCAT(fovea_try_, __LINE__) = (expr);                                                      \
  if (!FOVEA_CONCAT(fovea_try_, __LINE__)) return std::move(FOVEA_CONCAT(fovea_try_, __LINE__)).error(); \
  auto var = *std::move(FOVEA_CONCAT(fovea_try_, __LINE__))

/// Returns the error of a Status expression from the enclosing function, if it has one.
#define FOVEA_RETURN_IF_ERROR(expr)                                                        \
  do {                                                                                     \
    if (auto fovea_failed = (expr); !fovea_failed) return std::move(fovea_failed).error(); \
  } while (false)
