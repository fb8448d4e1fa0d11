#pragma once
// Regular expressions over bytes as a hash-consed graph, matched by derivatives (Brzozowski): equal
// expressions have the same number, so that a state of an automaton is a number, and intersection and
// complement cost nothing extra. The derivative of an expression by a byte matches what may follow that byte.
#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fovea::grammar {

using ByteSet = std::bitset<256>;
using Expr = uint32_t;

inline constexpr uint32_t kNoLimit = UINT32_MAX;  ///< a repeat without an upper bound

class Expressions {
 public:
  /// `most`: nodes; beyond them overflown() is true and results mean nothing.
  explicit Expressions(size_t most = 200'000);

  static constexpr Expr kNoText = 0;    ///< matches no text
  static constexpr Expr kEmpty = 1;     ///< matches the empty text
  static constexpr Expr kAnything = 2;  ///< matches all texts

  Expr bytes(const ByteSet& set);
  Expr byte(uint8_t value);
  /// Bytes from `first` to `last`.
  Expr range(uint8_t first, uint8_t last);
  Expr literal(std::string_view text);
  Expr concat(Expr a, Expr b);
  Expr concat(std::span<const Expr> parts);
  Expr either(std::span<const Expr> parts);
  Expr either(Expr a, Expr b) { return either(std::array{a, b}); }
  Expr both(std::span<const Expr> parts);
  Expr both(Expr a, Expr b) { return both(std::array{a, b}); }
  Expr negate(Expr e);
  /// `least` to `most` times.
  Expr repeat(Expr e, uint32_t least, uint32_t most);
  Expr optional(Expr e) { return repeat(e, 0, 1); }
  Expr star(Expr e) { return repeat(e, 0, kNoLimit); }
  /// The digits of a number that is a multiple of `divisor` * 10^-`places`: digits, or digits "." digits.
  /// `divisor` > 0 and below 2^31.
  Expr multiple(uint32_t divisor, uint32_t places);

  Expr derivative(Expr e, uint8_t byte);
  bool nullable(Expr e) const { return nodes_[e].nullable; }
  /// Whether it matches any text.
  bool can_match(Expr e);
  bool matches(Expr e, std::string_view text);

  /// Numbers the classes of bytes that no set of any expression so far distinguishes; [256]. Returns how
  /// many.
  int byte_classes(std::array<uint8_t, 256>& class_of) const;

  size_t size() const { return nodes_.size(); }
  void set_limit(size_t most) { most_ = most; }
  bool overflown() const { return overflown_; }
  /// Forgets all expressions from `size` on, which derivatives have made.
  void shrink(size_t size);

 private:
  enum class Kind : uint8_t { nothing, empty, bytes, concat, either, both, negate, repeat, multiple };
  struct Node {
    Kind kind;
    bool nullable;
    bool doubtful;  // it or a part is `both`, `negate` or `multiple`: it may match nothing
    uint32_t a,
        b;  // bytes: set. concat: both parts. either, both: first of lists_, count. negate, repeat: part.
    uint32_t least, most;  // repeat. multiple: remainder, places seen + 1 (0 = no point yet)
  };
  struct Key {
    Kind kind;
    uint32_t a, b, least, most;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };

  Expr add(Kind kind, uint32_t a, uint32_t b, uint32_t least, uint32_t most, bool nullable, bool doubtful);
  Expr add_list(Kind kind, std::vector<Expr>& list);
  Expr add_multiple(uint32_t divisor, uint32_t places, uint32_t remainder, uint32_t seen, bool digits);
  Expr derive(Expr e, uint8_t byte);
  Expr derive_multiple(const Node& node, uint8_t byte);
  std::span<const Expr> list(const Node& node) const { return {lists_.data() + node.a, node.b}; }
  void collect_sets(Expr e, std::vector<ByteSet>& sets) const;
  std::vector<uint8_t> representatives(Expr e, size_t& tests) const;
  void factor(std::vector<Expr>& all);

  size_t most_;
  bool overflown_ = false;
  int depth_ = 0;  // of factor()
  std::vector<Node> nodes_;
  std::vector<Expr> lists_;
  std::vector<ByteSet> sets_;
  std::unordered_map<Key, Expr, Hash> numbers_;
  std::unordered_map<uint64_t, std::vector<Expr>> list_numbers_;
  std::unordered_map<ByteSet, uint32_t> set_numbers_;
  std::unordered_map<uint64_t, Expr> derivatives_;
  std::unordered_map<Expr, bool> can_match_;
};

}  // namespace fovea::grammar
