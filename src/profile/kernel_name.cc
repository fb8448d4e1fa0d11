#include "profile/kernel_name.h"

#include <cxxabi.h>

#include <cctype>
#include <cstdlib>
#include <memory>

namespace fovea::profile {
namespace {

struct Free {
  void operator()(char* text) const { std::free(text); }
};

bool of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':';
}

void erase_all(std::string& text, std::string_view part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part))
    text.erase(at, part.size());
}

/// Removes the namespaces of every name in `text`.
std::string without_namespaces(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (!of_name(text[at])) {
      out += text[at++];
      continue;
    }
    size_t end = at;
    while (end < text.size() && of_name(text[end]))
      ++end;
    const std::string name = text.substr(at, end - at);
    const size_t last = name.rfind("::");
    out += last == std::string::npos ? name : name.substr(last + 2);
    at = end;
  }
  return out;
}

/// Up to the argument list: the first parenthesis outside of template arguments.
std::string without_arguments(const std::string& text) {
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '<') ++depth;
    if (text[at] == '>') --depth;
    if (text[at] == '(' && depth == 0) return text.substr(0, at);
  }
  return text;
}

}  // namespace

std::string short_kernel_name(std::string_view name) {
  int status = 0;
  const std::unique_ptr<char, Free> plain(
      abi::__cxa_demangle(std::string(name).c_str(), nullptr, nullptr, &status));
  if (status != 0 || !plain) return std::string(name);
  std::string text = plain.get();
  erase_all(text, "(anonymous namespace)::");
  for (const char* type : {"(bool)", "(int)", "(unsigned int)", "(long)"})
    erase_all(text, type);
  text = without_namespaces(without_arguments(text));
  if (text.starts_with("void ")) text.erase(0, 5);
  return text;
}

}  // namespace fovea::profile
