// The tests of "x is test".
#include <algorithm>
#include <array>

#include "text/jinja_characters.h"
#include "text/jinja_runtime.h"

namespace fovea::text::jinja {
namespace {

constexpr std::array<std::string_view, 37> kTests = {
    "defined",     "undefined",   "none",    "boolean",  "true",     "false",    "integer", "float",
    "number",      "string",      "mapping", "sequence", "iterable", "callable", "eq",      "equalto",
    "==",          "ne",          "!=",      "lt",       "lessthan", "<",        "le",      "<=",
    "gt",          "greaterthan", ">",       "ge",       ">=",       "in",       "even",    "odd",
    "divisibleby", "sameas",      "upper",   "lower",    "escaped"};

// Comparison operator of a test's name, "" for the others.
std::string_view comparison_of(std::string_view name) {
  if (name == "eq" || name == "equalto" || name == "==") return "==";
  if (name == "ne" || name == "!=") return "!=";
  if (name == "lt" || name == "lessthan" || name == "<") return "<";
  if (name == "le" || name == "<=") return "<=";
  if (name == "gt" || name == "greaterthan" || name == ">") return ">";
  if (name == "ge" || name == ">=") return ">=";
  return name == "in" ? "in" : "";
}

bool same(const Value& a, const Value& b) {
  return a.kind() == b.kind() && !a.is(Kind::real) && equal(a, b);
}

bool divides(Runtime& rt, const Value& value, const Value& divisor) {
  const Value rest = binary(rt, "%", value, divisor);
  return rest.is_number() && rest.as_real() == 0;
}

bool is_kind(std::string_view name, const Value& v) {
  if (name == "defined") return !v.is(Kind::undefined);
  if (name == "undefined") return v.is(Kind::undefined);
  if (name == "none") return v.is(Kind::none);
  if (name == "boolean") return v.is(Kind::boolean);
  if (name == "true") return v.is(Kind::boolean) && v.as_bool();
  if (name == "false") return v.is(Kind::boolean) && !v.as_bool();
  if (name == "integer") return v.is(Kind::integer);
  if (name == "float") return v.is(Kind::real);
  if (name == "number") return v.is_number();
  if (name == "string") return v.is(Kind::string);
  if (name == "mapping") return v.is(Kind::dict);
  if (name == "callable") return v.is(Kind::callable) || v.is(Kind::joiner) || v.is(Kind::loop);
  const bool sequence = v.is_sequence() || v.is(Kind::string) || v.is(Kind::dict) || v.is(Kind::undefined);
  if (name == "sequence" || name == "iterable")
    return sequence || (name == "iterable" && (v.is(Kind::loop) || v.is(Kind::generator)));
  return false;  // escaped: no value is marked as safe
}

}  // namespace

bool is_test(std::string_view name) {
  return std::find(kTests.begin(), kTests.end(), name) != kTests.end();
}

bool apply_test(Runtime& rt, std::string_view name, const Value& input, const std::vector<Value>& arguments) {
  if (!is_test(name)) rt.fail(std::string("unknown test '") + std::string(name) + "'");
  const std::string_view op = comparison_of(name);
  const bool takes_one = !op.empty() || name == "divisibleby" || name == "sameas";
  if (arguments.size() != (takes_one ? 1u : 0u)) {
    rt.fail(std::string("test '") + std::string(name) + "' takes " +
            (takes_one ? "one argument" : "no argument"));
  }
  if (!op.empty()) return compare(rt, op, input, arguments[0]);
  if (name == "divisibleby") return divides(rt, input, arguments[0]);
  if (name == "sameas") return same(input, arguments[0]);
  if (name == "even") return divides(rt, input, Value::integer(2));
  if (name == "odd") return equal(binary(rt, "%", input, Value::integer(2)), Value::integer(1));
  if (name == "upper" || name == "lower") {
    const std::string text = to_str(input);
    rt.charge(text.size());
    return in_class(text, name == "upper" ? "isupper" : "islower");
  }
  return is_kind(name, input);
}

}  // namespace fovea::text::jinja
