// Constraints from clients: the first byte is the kind, a line end separates the constraint and a text.
// Within the limits nothing takes long, and a token's bit in the mask says whether the token is accepted.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "grammar/compile.h"

namespace {

using namespace fovea::grammar;

std::shared_ptr<const TokenTrie> vocabulary() {
  static const auto trie = [] {
    static const char* const kWords[] = {"{\"", "\":", "\",",      "]}", "true",    "ab",
                                         "abc", "12",  "\xC3\xA4", "  ", "aaaaaaaa"};
    return std::make_shared<const TokenTrie>(
        268,
        [](int32_t id) {
          if (id < 256) return std::string(1, static_cast<char>(id));
          return id < 267 ? std::string(kWords[id - 256]) : std::string("<|x|>");
        },
        [](int32_t id) { return id == 267; }, std::vector<int32_t>{267});
  }();
  return trie;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 4096) return 0;
  const std::string all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t end = std::min(all.rfind('\n'), all.size());
  ConstraintSpec spec;
  spec.kind = static_cast<ConstraintSpec::Kind>(data[0] % 6);
  spec.text = all.substr(0, end);
  spec.choices = {spec.text};
  const auto constraint = compile_constraint(spec, vocabulary());
  if (!constraint) return 0;
  const std::string text = end < all.size() ? all.substr(end + 1) : "";
  (void)(*constraint)->allows(text);
  Matcher matcher(*constraint);
  std::vector<uint32_t> mask(vocabulary()->mask_words());
  for (size_t i = 0; i < std::min<size_t>(text.size() + 1, 12); ++i) {
    matcher.fill_mask(mask);
    bool any = false;
    for (int32_t id = 0; id < vocabulary()->vocab(); ++id) {
      const bool bit = (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
      any |= bit;
      if (matcher.accept(id) != bit) std::abort();
      if (bit) matcher.roll_back(1);
    }
    if (!any) std::abort();  // a text that is allowed so far can always go on or end
    if (i == text.size() || !matcher.accept(static_cast<uint8_t>(text[i]))) break;
  }
  return 0;
}
