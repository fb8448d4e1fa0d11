#include "grammar/character_names.h"

#include <map>
#include <string>

#include "text/unicode.h"

namespace fovea::grammar {
namespace {

constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
    {"Letter", "L"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"digit", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"punct", "P"},
    {"Symbol", "S"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Control", "Cc"},
    {"cntrl", "Cc"},
    {"Other", "C"},
    {"Alphabetic", "L"},
    {"Uppercase", "Lu"},
    {"Lowercase", "Ll"},
};

/// All categories, of one and of two letters.
const std::map<std::string, CodePoints, std::less<>>& categories() {
  static const auto all = [] {
    std::map<std::string, CodePoints, std::less<>> sets;
    std::string_view name = text::general_category(0);
    uint32_t first = 0;
    for (uint32_t c = 1; c <= kLastCodePoint + 1; ++c) {
      const auto next = c <= kLastCodePoint ? text::general_category(c) : std::string_view();
      if (next == name) continue;
      sets[std::string(name)].add(first, c - 1);
      sets[std::string(name.substr(0, 1))].add(first, c - 1);
      name = next;
      first = c;
    }
    return sets;
  }();
  return all;
}

}  // namespace

std::optional<CodePoints> characters_of_property(std::string_view name) {
  for (const std::string_view prefix : {"gc=", "General_Category="})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  if (name == "Any") return CodePoints::all();
  if (name == "ASCII") return CodePoints(0, 0x7F);
  for (const auto& [longer, shorter] : kLongNames)
    if (name == longer) name = shorter;
  const auto found = categories().find(name);
  return found == categories().end() ? std::nullopt : std::optional(found->second);
}

}  // namespace fovea::grammar
