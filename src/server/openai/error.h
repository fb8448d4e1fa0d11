#pragma once
// Errors in OpenAI's format: {"error": {"message", "type", "param", "code"}}, with the HTTP status beside it.
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "fovea/result_fwd.h"

namespace fovea::openai {

struct ApiError {
  int status = 400;
  std::string message;  ///< the given value, what is allowed, what to change; no internals
  std::string param;    ///< the field in error, "messages[2].role"; "" = null
  std::string code;     ///< "context_length_exceeded", "model_not_found", ...; "" = null
  int retry_after = 0;  ///< seconds, for 429 and 503; 0 = no header
};

/// The type for a status: invalid_request_error, authentication_error, permission_error, not_found_error,
/// rate_limit_error or server_error.
std::string_view error_type(int status);
/// Makes `text` one line without control characters: a terminal that shows it must not interpret them.
std::string printable_line(std::string_view text);
/// The body; control characters and invalid UTF-8 in the message are replaced.
std::string error_json(const ApiError& error);

inline ApiError bad_request(std::string message, std::string param = {}, std::string code = {}) {
  return {400, std::move(message), std::move(param), std::move(code)};
}

/// A value or an ApiError.
template <class T>
class [[nodiscard]] ApiResult {
 public:
  ApiResult(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  ApiResult(ApiError error) : state_(std::in_place_index<1>, std::move(error)) {}
  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  const ApiError& error() const& { return std::get<1>(state_); }
  ApiError&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, ApiError> state_;
};

}  // namespace fovea::openai
