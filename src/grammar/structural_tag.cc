#include "grammar/structural_tag.h"

#include <algorithm>
#include <map>

#include "base/printable.h"
#include "grammar/regex.h"
#include "grammar/written_grammar.h"
#include "text/utf8.h"

namespace fovea::grammar {
namespace {

using text::Json;
using Strings = std::vector<std::string>;

constexpr int64_t kMostRepeats = 10'000;

class Compiler {
 public:
  Compiler(Grammar& grammar, const JsonOptions& options, const TokenTrie& trie)
      : g_(grammar), x_(grammar.expressions()), options_(options), trie_(trie) {}

  /// `ends`: texts that may follow, which free text therefore does not contain.
  Result<Symbol> format(const Json& json, const std::string& path, const Strings& ends, int depth) {
    const Json* type = json.object() ? json.find("type") : nullptr;
    if (!type || !type->string()) return fail(path, "must be an object with a \"type\"");
    if (depth > 50) return fail(path, "nests deeper than 50 levels");
    const std::string& name = *type->string();
    FOVEA_RETURN_IF_ERROR(check_members(json, name, path));
    if (name == "const_string") {
      FOVEA_TRY(value, string_of(json, path, "value"));
      return g_.terminal(literal(value));
    }
    if (name == "json_schema") {
      const Json* schema = json.find("json_schema");
      if (!schema) return fail(path + ".json_schema", "is missing");
      if (const Json* style = json.find("style"); style && !(style->string() && *style->string() == "json"))
        return fail(path + ".style", "is " + style->describe() + "; only \"json\" can be enforced");
      return add_json_schema(g_, *schema, options_);
    }
    if (name == "regex") {
      FOVEA_TRY(pattern, string_of(json, path, "pattern"));
      FOVEA_TRY(text, compile_regex(x_, pattern, {}));
      return g_.terminal(text);
    }
    if (name == "grammar") {
      FOVEA_TRY(text, string_of(json, path, "grammar"));
      return add_written_grammar(g_, text);
    }
    if (name == "any_text") {
      Strings without = ends;
      FOVEA_RETURN_IF_ERROR(read_strings(json, path, "excludes", without));
      return g_.terminal(free_text(without));
    }
    if (name == "sequence" || name == "or") return elements(json, path, ends, depth);
    if (name == "optional" || name == "star" || name == "plus" || name == "repeat")
      return repeated(json, name, path, ends, depth);
    if (name == "tag") return tag(json, path, depth);
    if (name == "triggered_tags") return triggered(json, path, ends, depth);
    if (name == "tags_with_separator") return separated(json, path, depth);
    return fail(
        path + ".type",
        "is \"" + printable(name) +
            "\"; it must be const_string, json_schema, regex, grammar, any_text, sequence, or, optional, "
            "star, plus, repeat, tag, triggered_tags or tags_with_separator");
  }

  /// The older form.
  Result<Symbol> structures(const Json& json) {
    Strings triggers;
    FOVEA_RETURN_IF_ERROR(read_strings(json, "structural_tag", "triggers", triggers));
    const Json* list = json.find("structures");
    if (!list->array() || triggers.empty())
      return fail("structural_tag", "needs lists \"structures\" and \"triggers\"");
    std::vector<Symbol> tags;
    for (size_t i = 0; i < list->array()->size(); ++i) {
      const Json& each = (*list->array())[i];
      const std::string path = "structures[" + std::to_string(i) + "]";
      if (!each.object()) return fail(path, "is not an object");
      FOVEA_TRY(begin, string_of(each, path, "begin"));
      FOVEA_TRY(end, string_of(each, path, "end"));
      FOVEA_RETURN_IF_ERROR(check_trigger(begin, triggers, path));
      const Json* schema = each.find("schema");
      if (!schema) return fail(path + ".schema", "is missing");
      FOVEA_TRY(content, add_json_schema(g_, *schema, options_));
      tags.push_back(g_.sequence({g_.terminal(literal(begin)), content, g_.terminal(literal(end))}));
    }
    return with_text(tags, triggers, false, false);
  }

 private:
  static Error fail(const std::string& path, const std::string& why) { return invalid(path + " " + why); }

  Expr literal(std::string_view text) { return text_expression(x_, trie_, text); }

  /// Text, without special tokens, that contains none of `without`.
  Expr free_text(const Strings& without) {
    std::vector<Expr> all;
    for (const std::string& text : without)
      if (!text.empty()) all.push_back(literal(text));
    const Expr any = x_.star(expression_of(x_, CodePoints::all(), Spelling::utf8));
    if (all.empty()) return any;
    return x_.both(
        any,
        x_.negate(x_.concat(std::array{Expressions::kAnything, x_.either(all), Expressions::kAnything})));
  }

  Result<std::string> string_of(const Json& json, const std::string& path, std::string_view key) {
    const Json* value = json.find(key);
    if (!value || !value->string() || !text::is_valid_utf8(*value->string()))
      return fail(path + "." + std::string(key), "must be a string");
    return *value->string();
  }
  Status read_strings(const Json& json, const std::string& path, std::string_view key, Strings& out) {
    const Json* value = json.find(key);
    if (!value) return {};
    if (value->string()) {
      out.push_back(*value->string());
      return {};
    }
    if (!value->array()) return fail(path + "." + std::string(key), "must be a list of strings");
    for (const Json& each : *value->array()) {
      if (!each.string()) return fail(path + "." + std::string(key), "must be a list of strings");
      out.push_back(*each.string());
    }
    return {};
  }
  static bool flag(const Json& json, std::string_view key) {
    const Json* value = json.find(key);
    return value && value->boolean() && *value->boolean();
  }
  /// A member that is not known might change what is allowed.
  Status check_members(const Json& json, const std::string& name, const std::string& path) {
    using Names = std::vector<std::string_view>;
    static const std::map<std::string_view, Names> kMembers = {
        {"const_string", {"value"}},
        {"json_schema", {"json_schema", "style"}},
        {"regex", {"pattern"}},
        {"grammar", {"grammar"}},
        {"any_text", {"excludes"}},
        {"sequence", {"elements"}},
        {"or", {"elements"}},
        {"optional", {"content"}},
        {"star", {"content"}},
        {"plus", {"content"}},
        {"repeat", {"content", "min", "max"}},
        {"tag", {"begin", "content", "end"}},
        {"triggered_tags", {"triggers", "tags", "at_least_one", "stop_after_first", "excludes"}},
        {"tags_with_separator", {"tags", "separator", "at_least_one", "stop_after_first"}}};
    const auto known = kMembers.find(name);
    if (known == kMembers.end()) return {};
    for (const auto& [key, value] : *json.object())
      if (key != "type" && std::ranges::find(known->second, key) == known->second.end())
        return fail(path + "." + printable(key), "is no member of " + name);
    return {};
  }

  Status check_trigger(const std::string& begin, const Strings& triggers, const std::string& path) {
    for (const std::string& trigger : triggers)
      if (!trigger.empty() && begin.starts_with(trigger)) return {};
    return fail(path + ".begin", "is \"" + printable(begin) + "\", which begins with none of the triggers");
  }

  Result<Symbol> elements(const Json& json, const std::string& path, const Strings& ends, int depth) {
    const Json* list = json.find("elements");
    if (!list || !list->array() || list->array()->empty())
      return fail(path + ".elements", "must be a list of formats");
    const bool choice = *json.find("type")->string() == "or";
    std::vector<Symbol> parts;
    for (size_t i = 0; i < list->array()->size(); ++i) {
      const Json& each = (*list->array())[i];
      Strings after = ends;
      if (!choice && i + 1 < list->array()->size()) {
        after.clear();
        first_texts((*list->array())[i + 1], after);
      }
      FOVEA_TRY(part, format(each, path + ".elements[" + std::to_string(i) + "]", after, depth + 1));
      parts.push_back(part);
    }
    return choice ? g_.choice(parts) : g_.sequence(parts);
  }

  /// Texts with which a format begins, where that is known.
  static void first_texts(const Json& json, Strings& out) {
    for (const std::string_view key : {"begin", "value"})
      if (const Json* text = json.object() ? json.find(key) : nullptr; text && text->string())
        out.push_back(*text->string());
  }

  Result<Symbol> repeated(const Json& json, const std::string& name, const std::string& path,
                          const Strings& ends, int depth) {
    const Json* content = json.find("content");
    if (!content) return fail(path + ".content", "is missing");
    int64_t least = name == "plus" ? 1 : 0, most = name == "optional" ? 1 : kNoLimit;
    for (const auto& [key, count] : {std::pair("min", &least), std::pair("max", &most)}) {
      const Json* value = name == "repeat" ? json.find(key) : nullptr;
      if (!value || (key == std::string_view("max") && value->integer() && *value->integer() == -1)) continue;
      if (!value->integer() || *value->integer() < 0 || *value->integer() > kMostRepeats)
        return fail(path + "." + key, "is " + value->describe() + "; it must be an integer from 0 to 10000");
      *count = *value->integer();
    }
    if (least > most) return fail(path + ".min", "is larger than max");
    FOVEA_TRY(one, format(*content, path + ".content", ends, depth + 1));
    return g_.repeat(one, static_cast<uint32_t>(least), static_cast<uint32_t>(most));
  }

  Result<Symbol> tag(const Json& json, const std::string& path, int depth) {
    if (!json.object()) return fail(path, "is not an object");
    FOVEA_TRY(begin, string_of(json, path, "begin"));
    Strings ends;
    FOVEA_RETURN_IF_ERROR(read_strings(json, path, "end", ends));
    const Json* content = json.find("content");
    if (!content || ends.empty()) return fail(path, "needs \"begin\", \"content\" and \"end\"");
    FOVEA_TRY(inner, format(*content, path + ".content", ends, depth + 1));
    std::vector<Expr> closes;
    for (const std::string& end : ends)
      closes.push_back(literal(end));
    return g_.sequence({g_.terminal(literal(begin)), inner, g_.terminal(x_.either(closes))});
  }

  Result<std::vector<Symbol>> tags(const Json& json, const std::string& path, const Strings* triggers,
                                   int depth) {
    const Json* list = json.find("tags");
    if (!list || !list->array() || list->array()->empty())
      return fail(path + ".tags", "must be a list of tags");
    std::vector<Symbol> all;
    for (size_t i = 0; i < list->array()->size(); ++i) {
      const std::string at = path + ".tags[" + std::to_string(i) + "]";
      FOVEA_TRY(each, tag((*list->array())[i], at, depth + 1));
      if (triggers)
        FOVEA_RETURN_IF_ERROR(check_trigger(*(*list->array())[i].find("begin")->string(), *triggers, at));
      all.push_back(each);
    }
    return all;
  }

  /// Text and tags in turn.
  Symbol with_text(const std::vector<Symbol>& tags, const Strings& without, bool at_least_one,
                   bool only_one) {
    const Symbol text = g_.terminal(free_text(without));
    const Symbol one = g_.sequence({text, g_.choice(tags)});
    if (only_one) return at_least_one ? one : g_.choice({one, text});
    return g_.sequence({g_.repeat(one, at_least_one ? 1 : 0, kNoLimit), text});
  }

  Result<Symbol> triggered(const Json& json, const std::string& path, const Strings& ends, int depth) {
    Strings triggers;
    FOVEA_RETURN_IF_ERROR(read_strings(json, path, "triggers", triggers));
    if (triggers.empty()) return fail(path + ".triggers", "must be a list of strings");
    FOVEA_TRY(all, tags(json, path, &triggers, depth));
    Strings without = triggers;
    without.insert(without.end(), ends.begin(), ends.end());
    FOVEA_RETURN_IF_ERROR(read_strings(json, path, "excludes", without));
    return with_text(all, without, flag(json, "at_least_one"), flag(json, "stop_after_first"));
  }

  Result<Symbol> separated(const Json& json, const std::string& path, int depth) {
    FOVEA_TRY(separator, string_of(json, path, "separator"));
    FOVEA_TRY(all, tags(json, path, nullptr, depth));
    const Symbol one = g_.choice(all), between = g_.terminal(literal(separator));
    const uint32_t least = flag(json, "at_least_one") ? 1 : 0;
    return g_.repeat(one, least, flag(json, "stop_after_first") ? 1 : kNoLimit, &between);
  }

  Grammar& g_;
  Expressions& x_;
  const JsonOptions& options_;
  const TokenTrie& trie_;
};

}  // namespace

Expr text_expression(Expressions& x, const TokenTrie& trie, std::string_view text) {
  std::vector<Expr> parts;
  while (!text.empty()) {
    const std::string* found = nullptr;
    for (const std::string& special : trie.specials())
      if (!found && text.starts_with(special)) found = &special;
    const size_t length = found ? found->size() : 1;
    const std::string part(text.substr(0, length));
    parts.push_back(x.literal(found ? kSpecialMark + part + kSpecialMark : part));
    text.remove_prefix(length);
  }
  return x.concat(parts);
}

Result<Symbol> add_structural_tag(Grammar& grammar, const Json& tag, const JsonOptions& options,
                                  const TokenTrie& trie) {
  Compiler compiler(grammar, options, trie);
  if (tag.object() && tag.find("structures")) return compiler.structures(tag);
  const Json* format = tag.object() ? tag.find("format") : nullptr;
  if (!format) return invalid("the structural tag must be an object with \"format\", or with \"structures\"");
  return compiler.format(*format, "format", {}, 0);
}

}  // namespace fovea::grammar
