#include "base/printable.h"

namespace fovea {

std::string printable(std::string_view text, size_t limit) {
  std::string out;
  for (const char c : text.substr(0, limit))
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  if (text.size() > limit) {
    while (!out.empty() &&
           (static_cast<unsigned char>(out.back()) & 0xc0) == 0x80)  // no partial UTF-8 character
      out.pop_back();
    if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xc0) out.pop_back();
    out += "...";
  }
  return out;
}

}  // namespace fovea
