#include "server/api_style.h"

#include "server/openai/json_writer.h"
#include "server/openai/response.h"

namespace fovea::server {
namespace {

using openai::ApiError;

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    case 504: return "timeout_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

std::string member(std::string_view start, std::string_view text) {
  std::string out(start);
  openai::append_string(out, openai::printable_line(text));
  return out;
}

/// `id`: "" = left out.
std::string anthropic_error(const ApiError& error, std::string_view id) {
  std::string out = R"({"type":"error","error":{"type":")" + std::string(anthropic_type(error.status)) +
                    "\"" + member(",\"message\":", error.message) + "}";
  if (!id.empty()) out += member(",\"request_id\":", id);
  return out + "}";
}

std::string responses_error(const ApiError& error) {
  std::string out = R"({"type":"error","sequence_number":0,"code":)";
  openai::append_string(out, error.code.empty() ? openai::error_type(error.status) : error.code);
  out += member(",\"message\":", error.message) + ",\"param\":";
  return out + (error.param.empty() ? "null}" : member("", error.param) + "}");
}

}  // namespace

ApiStyle api_style(std::string_view path) {
  if (path.starts_with("/v1/messages")) return ApiStyle::anthropic;
  if (path.starts_with("/v1/responses")) return ApiStyle::responses;
  return path.starts_with("/api/") ? ApiStyle::ollama : ApiStyle::openai;
}

std::string error_body(ApiStyle style, const ApiError& error, std::string_view id) {
  switch (style) {
    case ApiStyle::anthropic: return anthropic_error(error, id);
    case ApiStyle::ollama: return member("{\"error\":", error.message) + "}";
    case ApiStyle::openai:
    case ApiStyle::responses: break;
  }
  return openai::error_json(error);
}

std::string stream_error(ApiStyle style, const ApiError& error) {
  switch (style) {
    case ApiStyle::anthropic: return "event: error\ndata: " + anthropic_error(error, "") + "\n\n";
    case ApiStyle::responses: return "event: error\ndata: " + responses_error(error) + "\n\n";
    case ApiStyle::ollama: return member("{\"error\":", error.message) + "}\n";
    case ApiStyle::openai: break;
  }
  return openai::StreamWriter::error(error);
}

}  // namespace fovea::server
