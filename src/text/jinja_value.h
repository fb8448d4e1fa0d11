#pragma once
// Values of the template language: Python's None, bool, int (64 bits), float, str, list, tuple and dict,
// which are immutable as in transformers' sandbox, and the few objects that templates can reach (namespace,
// loop, generators, cyclers, joiners, callables). Copies share their contents.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fovea::text::jinja {

class Value;
class Dict;
struct Sequence;
struct Namespace;
struct LoopState;
struct Progress;
struct Callable;
struct Statement;

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  list,
  tuple,
  dict,
  name_space,
  loop,
  generator,  ///< result of lazy filters: read once, without a length
  cycler,
  joiner,
  callable,
};

class Value {
 public:
  Value() = default;                         ///< undefined, without a name
  static Value undefined(std::string what);  ///< `what`: the message of the error that using it gives
  static Value none() { return Value(Kind::none); }
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value real(double value);
  /// An integer outside 64 bits: printed as `digits`, computed with as `value`.
  static Value large_integer(double value, std::string digits);
  static Value string(std::string value);
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value dict(Dict items);
  /// A pair whose parts also have the names "grouper" and "list".
  static Value group(Value grouper, Value list);
  /// `kind`: generator, cycler or joiner.
  static Value progress(Kind kind, std::vector<Value> items);
  static Value name_space(Namespace* object);  ///< owned by the interpreter
  static Value loop(std::shared_ptr<LoopState> state);
  static Value callable(Callable object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return is(Kind::boolean) || is(Kind::integer) || is(Kind::real); }
  bool is_integral() const { return is(Kind::boolean) || is(Kind::integer); }
  bool is_sequence() const { return is(Kind::list) || is(Kind::tuple); }

  // Valid only for the kind in the name.
  bool as_bool() const { return scalar_.boolean; }
  int64_t as_int() const { return is(Kind::boolean) ? scalar_.boolean : scalar_.integer; }
  const std::string* digits() const;  ///< of a large integer, else null
  double as_real() const { return is(Kind::real) ? scalar_.real : static_cast<double>(as_int()); }
  const std::string& as_string() const { return *static_cast<const std::string*>(object_.get()); }
  const std::vector<Value>& as_items() const;  ///< list and tuple
  const Dict& as_dict() const { return *static_cast<const Dict*>(object_.get()); }
  Namespace& as_namespace() const { return *scalar_.space; }
  LoopState& as_loop() const;
  Progress& as_progress() const;  ///< generator, cycler and joiner
  bool is_group() const;
  const Callable& as_callable() const;
  std::string undefined_message() const;

  /// Containers inside containers: 0 for scalars, 1 for a flat list.
  int nesting() const;
  /// Approximate bytes of the printed value. Shared parts count at each occurrence, so that a value grown by
  /// repeated doubling is detected.
  uint64_t weight() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::undefined;
  union {
    bool boolean;
    int64_t integer;
    double real;
    Namespace* space;
  } scalar_ = {};
  std::shared_ptr<const void> object_;
};

struct Sequence {
  std::vector<Value> items;
  int nesting = 1;
  uint64_t weight = 1;
  bool group = false;
};

/// Items that are consumed once (generator) or in a cycle (cycler), or the separator of a joiner.
struct Progress {
  Sequence sequence;
  size_t next = 0;
};

/// Keeps insertion order. Keys compare as Python's do: 1, 1.0 and True are one key.
class Dict {
 public:
  using Item = std::pair<Value, Value>;
  const std::vector<Item>& items() const { return items_; }
  size_t size() const { return items_.size(); }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);
  int nesting() const { return nesting_; }
  uint64_t weight() const { return weight_; }

 private:
  size_t position(const Value& key) const;  // size() when absent

  std::vector<Item> items_;
  std::unordered_map<std::string, size_t> index_;  // positions by canonical key, once there are many
  int nesting_ = 1;
  uint64_t weight_ = 1;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> members;
  const Value* find(std::string_view name) const;
};

/// What a call needs. `macro` and its `statement` are set for macros and callers, `self` for methods.
struct Callable {
  std::string name;
  Value self{};
  const void* macro = nullptr;
  const Statement* statement = nullptr;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Python's semantics of values; they need no interpreter.
bool truthy(const Value& value);
bool equal(const Value& a, const Value& b);
std::string_view type_name(const Value& value);  ///< "str", "int", ...
std::string to_str(const Value& value);          ///< str(); undefined gives ""
std::string to_repr(const Value& value);         ///< repr()
std::string real_to_str(double value);           ///< repr(float): shortest text that reads back the same

}  // namespace fovea::text::jinja
