// Any bytes as a form: the first line is its Content-Type, the rest the body. Accepted parts lie in the body,
// in order, without a delimiter; a refusal is one line.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "fovea/result.h"
#include "server/http/multipart.h"

namespace {

void check_refusal(const fovea::Error& error) {
  FOVEA_CHECK(error.message.find_first_of("\r\n") == std::string::npos);
  FOVEA_CHECK(error.message.size() < 300);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fovea::http;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(all.find('\n'), size);
  const auto boundary = form_boundary(all.substr(0, line));
  if (!boundary) {
    check_refusal(boundary.error());
    return 0;
  }
  FOVEA_CHECK(!boundary->empty() && boundary->size() <= 70);
  const std::string_view body = all.substr(std::min(line + 1, size));
  const auto parts = parse_form(body, *boundary);
  if (!parts) {
    check_refusal(parts.error());
    return 0;
  }
  FOVEA_CHECK(!parts->empty() && parts->size() <= kMostFormParts);
  const char* from = body.data();
  for (const FormPart& part : *parts) {
    FOVEA_CHECK(!part.name.empty());
    FOVEA_CHECK(part.data.find("\r\n--" + *boundary) == std::string_view::npos);
    if (part.data.empty()) continue;
    FOVEA_CHECK(part.data.data() >= from && part.data.data() + part.data.size() <= body.data() + body.size());
    from = part.data.data() + part.data.size();
  }
  return 0;
}
