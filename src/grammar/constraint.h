#pragma once
// A compiled constraint of answers, shared by the requests that have it, and the position of one answer in
// it.
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/token_trie.h"

namespace fovea::grammar {

/// Thread-safe. Its memory is bounded: what it has computed is forgotten when there is too much of it.
class Constraint {
 public:
  Constraint(Grammar grammar, std::shared_ptr<const TokenTrie> trie, size_t most_bytes = 64 << 20);

  const TokenTrie& trie() const { return *trie_; }
  /// Whether the whole text is allowed.
  bool allows(std::string_view text);

  /// A place of a matcher, of which another thread may compute the mask in advance.
  struct Place {
    uint64_t generation = 0;
    Automaton::State state = 0;
  };
  void prepare(Place place);

  struct Counts {
    int64_t masks = 0, computed = 0, resets = 0;
  };
  Counts counts() const;

 private:
  friend class Matcher;
  using State = Automaton::State;
  using Mask = std::vector<uint32_t>;

  /// A mask without end tokens.
  std::shared_ptr<const Mask> mask_of(State state);
  void walk(State state, const std::vector<TokenTrie::Node>& nodes, Mask& mask);
  /// How many plain characters may follow, whichever they are: at least `depth`, up to kMostPlain.
  struct Plain {
    uint32_t depth = 0;
    bool no_more = false;  ///< no longer plain text may
  };
  Plain plain_after(State state);
  std::optional<std::vector<State>> after_plain(State state);
  /// Starts over if there is too much; positions must be found again.
  void make_room();

  mutable std::mutex mutex_;
  std::shared_ptr<const TokenTrie> trie_;
  Automaton automaton_;
  uint64_t generation_ = 0;
  std::unordered_map<State, std::shared_ptr<const Mask>> masks_;
  std::unordered_map<State, std::vector<State>> after_plain_;  // empty = some plain character may not follow
  std::vector<State> path_;
  Counts counts_;
};

/// Where one answer is. Not thread-safe; different answers may be used by different threads.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<Constraint> constraint);

  /// Sets the bits of `mask` [trie().mask_words()] of the tokens that may follow, and clears all others. End
  /// tokens may where the text so far is allowed as a whole. All clear after the end.
  void fill_mask(std::span<uint32_t> mask);
  /// Advances by a token; false, and no change, where it may not follow.
  bool accept(int32_t token);
  /// Whether `text` follows, as accept() does for a token.
  bool accept_text(std::string_view text);
  /// Takes the last `count` accepted tokens back.
  void roll_back(size_t count);
  size_t accepted() const { return steps_.size(); }
  /// Whether the answer may end here.
  bool complete();
  /// Whether anything but the end may follow.
  bool continues();
  Constraint::Place place() const { return {generation_, state_}; }
  /// An end token has been accepted.
  bool ended() const { return ended_; }
  const Constraint& constraint() const { return *constraint_; }

 private:
  struct Step {
    Automaton::State before;
    uint32_t bytes;
  };
  void find_place();
  bool step(std::string_view bytes);

  std::shared_ptr<Constraint> constraint_;
  uint64_t generation_ = 0;
  Automaton::State state_ = 0;
  std::vector<Step> steps_;  // one for each accepted token
  std::string text_;
  bool ended_ = false;
};

}  // namespace fovea::grammar
