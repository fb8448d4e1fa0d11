// An arbitrary tokenizer.json: it parses or is refused; an accepted one encodes any text, and its own tokens
// survive encoding and decoding as far as its stages allow.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "fovea/result.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  fovea::set_log_level(fovea::LogLevel::off);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  auto tokenizer = fovea::Tokenizer::parse(bytes, R"({"clean_up_tokenization_spaces":true,"pad_token":"a"})");
  if (!tokenizer) {
    const std::string& message = tokenizer.error().message;
    if (message.find('\n') != message.npos || !fovea::text::is_valid_utf8(message)) std::abort();
    return 0;
  }
  for (const std::string_view text :
       {std::string_view("The 12 quick  brown\n\nfox's <s> caf\xC3\xA9 \xF0\x9F\x99\x82"),
        std::string_view("a\xFF\xC3 e\xCC\x81"), bytes.substr(0, 200)}) {
    auto ids = (*tokenizer)->encode(text);
    if (!ids) continue;
    for (const int32_t id : *ids) {
      if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
    }
    const std::string whole = (*tokenizer)->decode(*ids, false);
    if (!fovea::text::is_valid_utf8(whole)) std::abort();
    fovea::Tokenizer::Stream stream(**tokenizer, false);
    std::string streamed;
    for (const int32_t id : *ids) {
      stream.push(id, streamed);
      if (!fovea::text::is_valid_utf8(streamed)) std::abort();
    }
    stream.finish(streamed);
    if (streamed != whole) std::abort();
  }
  // Tokens that no text produces also decode.
  std::vector<int32_t> any_ids;
  for (size_t i = 0; i < std::min<size_t>(size, 64); ++i)
    any_ids.push_back(data[i] % (*tokenizer)->vocab_size());
  if (!fovea::text::is_valid_utf8((*tokenizer)->decode(any_ids, true))) std::abort();
  return 0;
}
