// An arbitrary chat template and variables: the input is the template, or the template, a zero byte and the
// variables as JSON. Rendering terminates, and its output is valid UTF-8.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fovea/result.h"
#include "text/chat_template.h"
#include "text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t zero = bytes.find('\0');
  auto chat_template = fovea::ChatTemplate::parse(bytes.substr(0, zero));
  if (!chat_template) {
    if (!fovea::text::is_valid_utf8(chat_template.error().message)) std::abort();
    return 0;
  }
  constexpr std::string_view kVariables =
      R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"<think>x</think>y"}],"n":3,
          "text":"Hello, World","list":[3,1,2],"dict":{"a":1,"b":[true,null,1.5]},"tools":[{"name":"f"}]})";
  const std::string_view variables = zero == std::string_view::npos ? kVariables : bytes.substr(zero + 1);
  auto text = (*chat_template)->render_json(variables);
  if (!fovea::text::is_valid_utf8(text ? *text : text.error().message)) std::abort();
  return 0;
}
