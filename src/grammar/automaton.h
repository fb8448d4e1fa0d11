#pragma once
// Runs a grammar byte by byte. A state is a number: the Earley sets of the places where a terminal began,
// each with the terminals' derivatives since then. Sets with equal items are one set, so that equal contexts
// have equal states; transitions are computed once and kept, so that the automaton becomes a table where
// texts go.
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/grammar.h"

namespace fovea::grammar {

class Automaton {
 public:
  using State = uint32_t;
  static constexpr State kDead = 0;  ///< no text continues it

  /// `grammar`: after finish(). `most_bytes`: full() beyond, about.
  explicit Automaton(Grammar grammar, size_t most_bytes = 64 << 20);

  State start() const { return start_; }
  State next(State state, uint8_t byte) {
    const State known = next_[size_t{state} * classes_ + class_of_[byte]];
    return known != kUnknown ? known : compute(state, byte);
  }
  /// Whether the text so far is in the language.
  bool accepts(State state) const { return states_[state].accepts; }
  /// Whether a longer text is.
  bool continues(State state) const { return states_[state].count > 0; }

  size_t states() const { return states_.size(); }
  size_t sets() const { return sets_.size(); }
  /// A byte of each class that the grammar distinguishes.
  const std::vector<uint8_t>& representatives() const { return representatives_; }
  const std::array<uint8_t, 256>& classes() const { return class_of_; }
  /// Bytes in use, about.
  size_t bytes() const;
  bool full() const { return bytes() > most_bytes_ || grammar_.overflown(); }
  /// Forgets all states except the first; their numbers mean others afterwards.
  void reset();

 private:
  static constexpr State kUnknown = UINT32_MAX;
  using SetId = uint32_t;
  using LexerState = uint32_t;

  /// An item of an Earley set: a place of a rule that began at set `origin`.
  struct Item {
    Grammar::Place place;
    SetId origin;
    auto operator<=>(const Item&) const = default;
  };
  struct Set {
    std::vector<Item> kernel;     // sorted
    std::vector<Item> names;      // that wait for a name, sorted by it
    std::vector<Item> terminals;  // likewise
    bool accepts = false;
    LexerState lexer = 0;
  };
  struct Lexer {
    std::vector<std::pair<uint32_t, Expr>> terminals;  // and what must still follow
    std::vector<uint32_t> ended;                       // terminals that match what was read
  };
  /// A set and the terminals that began there.
  struct Thread {
    SetId set;
    LexerState lexer;
    auto operator<=>(const Thread&) const = default;
  };
  struct StateInfo {
    uint32_t first = 0, count = 0;  // of threads_
    bool accepts = false;
  };

  State compute(State state, uint8_t byte);
  State add_state(std::vector<Thread>& threads, bool accepts);
  LexerState lex(LexerState lexer, uint8_t byte);
  LexerState add_lexer(Lexer lexer);
  SetId add_set(std::vector<Item>& kernel);
  void close(SetId id);
  void begin();

  Grammar grammar_;
  size_t most_bytes_, first_expressions_ = 0;
  std::array<uint8_t, 256> class_of_{};
  size_t classes_ = 0;
  std::vector<uint8_t> representatives_;
  State start_ = 0;
  std::vector<Set> sets_;
  std::vector<Lexer> lexers_;
  std::vector<LexerState> lexer_next_;  // [lexers][classes]
  std::vector<StateInfo> states_;
  std::vector<Thread> threads_;
  std::vector<State> next_;  // [states][classes]
  std::unordered_multimap<uint64_t, uint32_t> set_numbers_, lexer_numbers_, state_numbers_;
  size_t set_bytes_ = 0;
  // Scratch of close(), by name: the last set that predicted it.
  std::vector<SetId> predicted_;
};

}  // namespace fovea::grammar
