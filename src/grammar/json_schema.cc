#include "grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>

#include "grammar/json_text.h"
#include "grammar/regex.h"
#include "grammar/schema_reader.h"

namespace fovea::grammar {
namespace {

using text::Json;

class Compiler {
 public:
  Compiler(Grammar& grammar, const Json& root, bool strict)
      : g_(grammar), x_(grammar.expressions()), reader_(x_, root, strict) {}

  Status set_white_space(const std::string& pattern) {
    FOVEA_TRY(white, compile_regex(x_, pattern, {}));
    white_ = white;
    comma_ = g_.terminal(x_.concat(x_.byte(','), white_));
    return {};
  }

  Symbol compile(const Conjunction& schemas) {
    std::vector<std::pair<const Json*, bool>> key;
    for (const SchemaRef& ref : schemas)
      key.emplace_back(ref.schema, ref.negated);
    if (const auto found = symbols_.find(key); found != symbols_.end()) return found->second;
    const Symbol name = g_.add_name();
    symbols_[key] = name;
    waiting_.emplace_back(name, schemas);
    return name;
  }

  /// Everything that compile() has promised; in a line, since chains of schemas may be long.
  Status finish() {
    for (; !waiting_.empty() && !g_.full(); waiting_.pop_front())  // Grammar::finish() reports it
      FOVEA_RETURN_IF_ERROR(add_rules(waiting_.front().first, waiting_.front().second));
    return {};
  }

 private:
  Status add_rules(Symbol name, const Conjunction& schemas) {
    FOVEA_TRY(shape, reader_.shape(schemas));
    std::vector<Expr> scalars{shape.number};
    if (shape.null) scalars.push_back(x_.literal("null"));
    if (shape.yes) scalars.push_back(x_.literal("true"));
    if (shape.no) scalars.push_back(x_.literal("false"));
    for (const StringShape& string : shape.strings)
      scalars.push_back(string_text(x_, string));
    const Expr scalar = x_.either(scalars);
    if (scalar != Expressions::kNoText) g_.add_rule(name, {g_.terminal(scalar)});
    for (const ArrayShape& array : shape.arrays) {
      FOVEA_TRY(symbol, compile_array(array));
      g_.add_rule(name, {symbol});
    }
    for (const ObjectShape& object : shape.objects) {
      FOVEA_TRY(symbol, compile_object(object));
      g_.add_rule(name, {symbol});
    }
    return {};
  }

  struct Member {
    Symbol pair;
    bool required = false;
  };

  Symbol open(char bracket) { return g_.terminal(x_.concat(x_.byte(static_cast<uint8_t>(bracket)), white_)); }
  Symbol close(char bracket) {
    return g_.terminal(x_.concat(white_, x_.byte(static_cast<uint8_t>(bracket))));
  }
  Symbol never() { return g_.add_name(); }

  Result<Symbol> compile_array(const ArrayShape& array) {
    const auto prefix = static_cast<uint32_t>(array.longest_prefix());
    std::vector<Symbol> items;
    uint32_t most = array.most;
    for (uint32_t i = 0; i < prefix && i < array.most; ++i) {
      items.push_back(compile(array.at(i)));
    }
    const Conjunction rest = array.at(prefix);
    if (std::ranges::any_of(rest, [&](const SchemaRef& ref) { return reader_.never(ref); }))
      most = std::min(most, prefix);
    const Symbol other = most > prefix ? compile(rest) : never();
    if (array.least > most) return never();
    if (!array.contains.empty()) {
      FOVEA_TRY(content, containing(array, most));
      return g_.sequence({open('['), content, close(']')});
    }
    return g_.sequence({open('['), list(items, other, array.least, most), close(']')});
  }

  /// Items in their order, then any number of `other`, `least` to `most` in all.
  Symbol list(const std::vector<Symbol>& items, Symbol other, uint32_t least, uint32_t most) {
    const auto count = static_cast<uint32_t>(items.size());
    if (count == 0) return g_.repeat(other, least, most, &comma_);
    // rest = what may follow when `i` items are there.
    const auto more = [](uint32_t of, uint32_t there) {
      return of == kNoLimit ? kNoLimit : of > there ? of - there : 0;
    };
    Symbol rest = g_.repeat(g_.sequence({comma_, other}), more(least, count), more(most, count));
    for (uint32_t i = count; i-- > 0;) {
      const Symbol here = g_.add_name();
      if (i >= least) g_.add_rule(here, {});
      if (i < most)
        g_.add_rule(here, i > 0 ? std::vector{comma_, items[i], rest} : std::vector{items[i], rest});
      rest = here;
    }
    return rest;
  }

  /// Arrays with a number of items of a kind: states count the items and those of the kind.
  Result<Symbol> containing(const ArrayShape& array, uint32_t most) {
    const ArrayShape::Contains& contains = array.contains.front();
    const auto fail = [&](const std::string& why) {
      return invalid("the schema's " + contains.item.path + " can't be enforced " + why);
    };
    if (array.contains.size() > 1) return fail("beside another contains");
    const auto prefix = static_cast<uint32_t>(array.longest_prefix());
    const uint32_t kinds = contains.most == kNoLimit ? contains.least : contains.most;
    // Beyond `counted` items the number does not matter.
    const uint32_t counted = std::max(prefix, most == kNoLimit ? array.least : most);
    if (kinds > 64 || counted > 256 || (kinds + 1) * (counted + 1) > 4096)
      return fail("with such large numbers of items; lower minItems, maxItems, minContains or maxContains");
    SchemaRef not_item = contains.item;
    not_item.negated = !not_item.negated;
    std::map<std::pair<uint32_t, uint32_t>, Symbol> states;
    std::vector<std::pair<uint32_t, uint32_t>> open_states{{0, 0}};
    states[{0, 0}] = g_.add_name();
    while (!open_states.empty()) {
      const auto [i, k] = open_states.back();
      open_states.pop_back();
      const Symbol name = states[{i, k}];
      if (i >= array.least && k >= contains.least) g_.add_rule(name, {});
      // The state (counted, *) of an unlimited array stands for more items, too.
      if (i == most) continue;
      const auto follow = [&](const Conjunction& item, uint32_t kind) {
        const Symbol symbol = compile(item);
        const std::pair next(std::min(i + 1, counted + 1), kind);
        const auto [at, added] = states.try_emplace(next);
        if (added) {
          at->second = g_.add_name();
          open_states.push_back(next);
        }
        if (i > 0)
          g_.add_rule(name, {comma_, symbol, at->second});
        else
          g_.add_rule(name, {symbol, at->second});
      };
      Conjunction of_kind = array.at(i), other = of_kind;
      add_to(of_kind, contains.item);
      const bool saturated = k == kinds && contains.most == kNoLimit;
      if (!saturated && k < kinds) follow(of_kind, k + 1);
      if (contains.most != kNoLimit) add_to(other, not_item);  // exact counts
      follow(other, k);
    }
    return states[{0, 0}];
  }

  Symbol pair(Expr key, Symbol value) {
    const Expr head = x_.concat(std::array{x_.byte('"'), key, x_.byte('"'), x_.byte(':'), white_});
    return g_.sequence({g_.terminal(head), value});
  }

  Result<Symbol> compile_object(const ObjectShape& object) {
    std::vector<std::string> keys;
    const auto add_key = [&](const std::string& key) {
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    };
    for (const ObjectShape::Properties& each : object.properties)
      for (const auto& [name, value] : each.named)
        add_key(name);
    for (const std::string& name : object.required)
      add_key(name);
    // The names that propertyNames allows.
    Expr names = Expressions::kAnything;
    if (!object.names.empty()) {
      Conjunction all;
      for (const SchemaRef& ref : object.names)
        add_to(all, ref);
      FOVEA_TRY(shape, reader_.shape(all));
      std::vector<Expr> each;
      for (const StringShape& string : shape.strings)
        each.push_back(string_body(x_, string));
      names = x_.either(each);
    }
    std::vector<Member> members;
    std::vector<Expr> listed;
    for (const std::string& key : keys) {
      const Expr spelled = literal_of(x_, key, Spelling::json);
      listed.push_back(spelled);
      Member member;
      member.required = object.requires_name(key);
      const Conjunction schemas = schemas_of(x_, object, key);
      const bool never_there =
          (names != Expressions::kAnything && !x_.can_match(x_.both(names, spelled))) ||
          std::ranges::any_of(schemas, [&](const SchemaRef& ref) { return reader_.never(ref); });
      if (never_there && member.required) return never();
      if (never_there) continue;
      member.pair = pair(spelled, compile(schemas));
      members.push_back(member);
    }
    FOVEA_TRY(others, other_members(object, names, listed));
    return g_.sequence({open('{'), member_list(members, others, object.least, object.most), close('}')});
  }

  /// Members whose names are not listed; nullopt = there are none.
  Result<std::optional<Symbol>> other_members(const ObjectShape& object, Expr names,
                                              const std::vector<Expr>& listed) {
    std::vector<const ObjectShape::Pattern*> patterns;
    for (const ObjectShape::Properties& each : object.properties)
      for (const ObjectShape::Pattern& pattern : each.patterns)
        patterns.push_back(&pattern);
    if (patterns.size() > 6)
      return invalid("the schema's " + patterns[0]->value.path +
                     " can't be enforced: more than 6 patterns of names hold together");
    std::vector<Symbol> pairs;
    for (uint32_t subset = 0; subset < 1U << patterns.size(); ++subset) {
      std::vector<Expr> parts{names};
      Conjunction schemas;
      size_t index = 0;
      for (const ObjectShape::Properties& each : object.properties) {
        bool matched = false;
        for (const ObjectShape::Pattern& pattern : each.patterns) {
          const bool in = (subset >> index++ & 1) != 0;
          parts.push_back(in ? pattern.names : x_.negate(pattern.names));
          matched |= in;
          if (in) add_to(schemas, pattern.value);
        }
        if (!matched && each.others) add_to(schemas, *each.others);
      }
      if (std::ranges::any_of(schemas, [&](const SchemaRef& ref) { return reader_.never(ref); })) continue;
      if (!listed.empty()) parts.push_back(x_.negate(x_.either(listed)));
      Expr key = x_.both(parts);
      if (key == Expressions::kAnything)
        key = x_.star(any_json_character(x_));
      else
        key = x_.both(key, x_.star(expression_of(x_, CodePoints::all(), Spelling::json)));
      if (!x_.can_match(key)) continue;
      pairs.push_back(pair(key, compile(schemas)));
    }
    if (pairs.empty()) return std::optional<Symbol>();
    return std::optional(g_.choice(pairs));
  }

  /// The members in their order, those that are not required optional, then others; `least` to `most` in all.
  Symbol member_list(const std::vector<Member>& members, const std::optional<Symbol>& others, uint32_t least,
                     uint32_t most) {
    const auto required =
        static_cast<uint32_t>(std::ranges::count_if(members, [](const Member& m) { return m.required; }));
    const auto all = static_cast<uint32_t>(members.size());
    const bool counts = least > required || most < (others ? kNoLimit : all);
    // States are (member, members so far, counted up to `cap`).
    const uint32_t cap = !counts ? 1 : most == kNoLimit ? std::max(least, 1U) : std::max(most, 1U);
    if (!counts) least = 0;
    std::map<std::pair<uint32_t, uint32_t>, Symbol> states;
    const auto with_comma = [&](uint32_t count, Symbol pair, Symbol rest) {
      return count > 0 ? std::vector{comma_, pair, rest} : std::vector{pair, rest};
    };
    const auto state = [&](auto&& self, uint32_t i, uint32_t count) -> Symbol {
      if (const auto found = states.find({i, count}); found != states.end()) return found->second;
      const Symbol name = g_.add_name();
      states[{i, count}] = name;
      if (g_.full()) return name;
      const bool room = !counts || most == kNoLimit || count < most;
      const uint32_t more = std::min(count + 1, cap);
      if (i < all) {
        if (room) g_.add_rule(name, with_comma(count, members[i].pair, self(self, i + 1, more)));
        if (!members[i].required) g_.add_rule(name, {self(self, i + 1, count)});
        return name;
      }
      if (count >= least) g_.add_rule(name, {});
      if (!others || !room) return name;
      if (count == cap)  // the number no longer matters
        g_.add_rule(name, {g_.repeat(g_.sequence({comma_, *others}), 1, kNoLimit)});
      else
        g_.add_rule(name, with_comma(count, *others, self(self, i, more)));
      return name;
    };
    // From the end, so that the recursion stays flat.
    for (uint32_t i = all + 1; i-- > 0;)
      for (uint32_t count = (i == all && others ? cap : std::min(cap, i)) + 1; count-- > 0 && !g_.full();)
        (void)state(state, i, count);
    return state(state, 0, 0);
  }

  Grammar& g_;
  Expressions& x_;
  SchemaReader reader_;
  Expr white_ = Expressions::kEmpty;
  Symbol comma_;
  std::map<std::vector<std::pair<const Json*, bool>>, Symbol> symbols_;
  std::deque<std::pair<Symbol, Conjunction>> waiting_;
};

}  // namespace

Result<Symbol> add_json_schema(Grammar& grammar, const Json& schema, const JsonOptions& options) {
  Compiler compiler(grammar, schema, options.strict);
  FOVEA_RETURN_IF_ERROR(compiler.set_white_space(options.white_space));
  const Symbol root = compiler.compile({{&schema, false, "#"}});
  FOVEA_RETURN_IF_ERROR(compiler.finish());
  return root;
}

Result<Symbol> add_json_object(Grammar& grammar, const JsonOptions& options) {
  static const Json kSchema = [] {
    Json::Object schema;
    schema.emplace_back("type", Json(std::string("object")));
    return Json(std::move(schema));
  }();
  return add_json_schema(grammar, kSchema, options);
}

}  // namespace fovea::grammar
