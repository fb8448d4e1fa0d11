#pragma once
// Shared by filters, tests, methods and operators while a template runs: budgets and error reporting.
#include <deque>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace fovea::text::jinja {

struct Limits {
  uint64_t steps = 1'000'000;         ///< statements, loop iterations and calls
  uint64_t work = uint64_t{1} << 29;  ///< bytes of strings and elements of containers made or read
  uint64_t output_bytes = 32u << 20;  ///< of the result, and of each intermediate string or container
  int evaluation_depth = 800;         ///< nested evaluations, through macros too
  int macro_depth = 60;               ///< nested macro calls and recursive loops
  int value_nesting = 100;            ///< containers in containers
};

class Runtime {
 public:
  explicit Runtime(const Limits& limits) : limits_(limits) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// Where errors are reported; the interpreter updates it.
  int64_t offset = 0;

  [[noreturn]] void fail(std::string message) const { throw Failure{std::move(message), offset}; }
  /// Counts one statement, loop iteration or call.
  void step();
  /// Counts `amount` bytes or elements that are read or made.
  void charge(uint64_t amount);
  const Limits& limits() const { return limits_; }

  // Construct values within the limits.
  Value string(std::string text);
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  Value dict(Dict items);
  Value generator(std::vector<Value> items);
  Value new_namespace();

  /// The items that a for loop over `value` visits; consumes a generator. An error for values that Python
  /// can't iterate.
  std::vector<Value> iterate(const Value& value);

 private:
  Value check(Value value);

  Limits limits_;
  uint64_t steps_ = 0;
  uint64_t work_ = 0;
  // Namespaces may refer to each other in cycles, so values do not own them.
  std::deque<Namespace> namespaces_;
};

/// Arguments by parameter name, null where absent; an error for unknown, repeated or too many arguments.
/// `what` names the callee in errors.
std::vector<const Value*> bind(const Runtime& rt, std::string_view what, const Arguments& arguments,
                               std::initializer_list<std::string_view> parameters);

int64_t want_int(const Runtime& rt, const Value& value, std::string_view what);
const std::string& want_string(const Runtime& rt, const Value& value, std::string_view what);

// jinja_operators.cc
Value get_attribute(Runtime& rt, const Value& object, std::string_view name);
Value get_item(Runtime& rt, const Value& object, const Value& key);
Value get_slice(Runtime& rt, const Value& object, const Value* start, const Value* stop, const Value* step);
Value binary(Runtime& rt, std::string_view op, const Value& a, const Value& b);
Value negate(Runtime& rt, const Value& value);
bool compare(Runtime& rt, std::string_view op, const Value& a, const Value& b);
bool less(Runtime& rt, const Value& a, const Value& b);
bool contains(Runtime& rt, const Value& container, const Value& item);
int64_t length(Runtime& rt, const Value& value);

// jinja_methods.cc
bool is_method(const Value& object, std::string_view name);
/// Methods that would change a list or dict.
bool is_mutating_method(const Value& object, std::string_view name);
Value call_method(Runtime& rt, const Value& object, std::string_view name, const Arguments& arguments);
std::string strip(std::string_view text, const Value* chars, bool left, bool right);
std::string replace_all(Runtime& rt, const std::string& text, const std::string& from, const std::string& to,
                        int64_t count);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends = false);

// jinja_format.cc
/// `text % value`.
std::string format_percent(Runtime& rt, std::string_view text, const Value& value);
/// text.format(...).
std::string format_braces(Runtime& rt, std::string_view text, const Arguments& arguments);

// jinja_filters.cc, jinja_predicates.cc, jinja_globals.cc
Value apply_filter(Runtime& rt, std::string_view name, const Value& input, const Arguments& arguments);
bool apply_test(Runtime& rt, std::string_view name, const Value& input, const std::vector<Value>& arguments);
bool is_filter(std::string_view name);
bool is_test(std::string_view name);
bool is_global(std::string_view name);
Value call_global(Runtime& rt, std::string_view name, const Arguments& arguments);
Value call_joiner(Runtime& rt, const Value& joiner, const Arguments& arguments);

}  // namespace fovea::text::jinja
