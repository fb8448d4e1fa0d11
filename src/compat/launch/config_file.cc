#include "compat/launch/config_file.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
// toml++ asserts (with NDEBUG: assumes) conditions that an input file can violate ("[[[": no key), although
// it reports an error for them afterwards.
#define TOML_ASSERT(expr) static_assert(true)
#pragma push_macro("NDEBUG")
#undef NDEBUG
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

#include "base/printable.h"
#include "fovea/result.h"

namespace fovea {
namespace {

class Reader {
 public:
  Reader(const std::string& file, const IsSection& is_section) : file_(file), is_section_(is_section) {}

  Status read(const toml::table& table, const std::vector<std::string>& section) {
    for (const auto& [name, node] : table) {
      std::vector<std::string> path = section;
      path.emplace_back(name.str());
      if (const toml::table* inner = node.as_table(); inner != nullptr && is_section_(path)) {
        FOVEA_RETURN_IF_ERROR(read(*inner, path));
        continue;
      }
      ConfigEntry entry{
          section, std::string(name.str()), static_cast<int>(name.source().begin.line), node.is_table(), {}};
      std::ranges::replace(entry.key, '_', '-');
      FOVEA_RETURN_IF_ERROR(set_value(node, entry));
      entries_.push_back(std::move(entry));
    }
    return {};
  }

  std::vector<ConfigEntry> take() {
    std::ranges::stable_sort(entries_, {}, &ConfigEntry::line);  // the library sorts keys alphabetically
    return std::move(entries_);
  }

 private:
  Status set_value(const toml::node& node, ConfigEntry& entry) const {
    if (const auto* on = node.as_boolean()) {
      entry.value = on->get();
    } else if (const toml::table* table = node.as_table()) {
      std::ostringstream text;
      text << toml::json_formatter(*table, toml::format_flags::none);
      entry.value = text.str();
    } else if (const toml::array* list = node.as_array()) {
      std::vector<std::string> values;
      for (const toml::node& item : *list) {
        FOVEA_TRY(text, scalar(item, entry));
        values.push_back(std::move(text));
      }
      entry.value = std::move(values);
    } else {
      FOVEA_TRY(text, scalar(node, entry));
      entry.value = std::move(text);
    }
    return {};
  }

  Result<std::string> scalar(const toml::node& node, const ConfigEntry& entry) const {
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* number = node.as_integer()) return std::to_string(number->get());
    if (const auto* number = node.as_floating_point()) {
      char text[32];
      const auto [end, error] = std::to_chars(text, text + sizeof text, number->get());
      return std::string(text, end);
    }
    return invalid(file_ + ":" + std::to_string(entry.line) + ": " + printable(entry.key) +
                   " takes no value of this type; give a string, a number, true or false, or a list of "
                   "strings or numbers");
  }

  const std::string& file_;
  const IsSection& is_section_;
  std::vector<ConfigEntry> entries_;
};

}  // namespace

Result<std::vector<ConfigEntry>> parse_config_file(std::string_view text, const std::string& file,
                                                   const IsSection& is_section) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return invalid(file + ":" + std::to_string(error.source().begin.line) + ": this is not valid TOML: " +
                   printable(error.description(), 200) + "; write KEY = VALUE, with quotes around text");
  }
  Reader reader(file, is_section);
  FOVEA_RETURN_IF_ERROR(reader.read(parsed.table(), {}));
  return reader.take();
}

}  // namespace fovea
