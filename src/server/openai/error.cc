#include "server/openai/error.h"

#include "server/openai/json_writer.h"
#include "text/utf8.h"

namespace fovea::openai {
namespace {

void append_or_null(std::string& out, std::string_view text) {
  if (text.empty())
    out += "null";
  else
    append_string(out, text);
}

}  // namespace

std::string printable_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte == 0x7F)
      out += text::kReplacementUtf8;
    else
      out += c;
  }
  return out;
}

std::string_view error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string error_json(const ApiError& error) {
  std::string out = "{\"error\":{\"message\":";
  append_string(out, printable_line(error.message));
  out += ",\"type\":";
  append_string(out, error_type(error.status));
  out += ",\"param\":";
  append_or_null(out, printable_line(error.param));
  out += ",\"code\":";
  append_or_null(out, printable_line(error.code));
  out += "}}";
  return out;
}

}  // namespace fovea::openai
