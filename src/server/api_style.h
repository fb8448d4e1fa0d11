#pragma once
// The APIs whose errors differ in shape.
#include <cstdint>
#include <string>
#include <string_view>

#include "server/openai/error.h"

namespace fovea::server {

enum class ApiStyle : uint8_t { openai, responses, anthropic, ollama };

/// By a request's path.
ApiStyle api_style(std::string_view path);
/// The body of an error. `id`: of the request.
std::string error_body(ApiStyle style, const openai::ApiError& error, std::string_view id);
/// The end of a stream that fails.
std::string stream_error(ApiStyle style, const openai::ApiError& error);

}  // namespace fovea::server
