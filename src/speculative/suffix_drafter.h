#pragma once
// Suffix decoding: the longest earlier match of the last tokens, and of what followed it the most frequent.
// Searches the sequence's own tokens and, if the configuration allows it, earlier answers of the same client.
#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "fovea/speculative.h"
#include "speculative/drafter.h"

namespace fovea {

/// Texts, and where each pair of tokens occurred in them. Old texts are dropped in the order of arrival.
class SuffixIndex {
 public:
  /// Positions count from the first text ever added.
  size_t begin() const { return begin_; }
  size_t end() const { return begin_ + tokens_.size(); }
  /// Appends a token to the newest text; kBreak ends a text: no match crosses it.
  void push(int32_t token);
  static constexpr int32_t kBreak = -1;
  /// Drops the tokens before `position`.
  void drop(size_t position);

  struct Match {
    int length = 0;            ///< tokens before each of `ends` that are the last ones searched for
    std::vector<size_t> ends;  ///< newest first
  };
  /// The places that continue the longest match with the end of `last`, 2 to `longest` tokens; looks at the
  /// newest kPlaces places. `below`: only places before this position.
  Match find(std::span<const int32_t> last, int longest, size_t below) const;
  int32_t at(size_t position) const { return tokens_[position - begin_]; }

  static constexpr int kPlaces = 32;

 private:
  static uint64_t key(int32_t first, int32_t second);

  size_t begin_ = 0;
  std::deque<int32_t> tokens_;
  std::deque<size_t> before_;                    // of each position: the one with the same pair before
  std::unordered_map<uint64_t, size_t> newest_;  // by pair: the position after it
};

class SuffixDrafter final : public Drafter {
 public:
  explicit SuffixDrafter(const SpeculativeConfig& config) : config_(config) {}

  void propose(std::span<DraftJob> jobs) override;
  /// Indexes the tokens. Most last tokens have occurred before, so it is not worth the search to say no.
  bool may_draft(const DraftJob& job) override;
  void end(uint64_t id, std::span<const int32_t> tokens, int prompt_len, std::string_view client) override;

 private:
  /// The earlier answers of a client.
  struct Answers {
    SuffixIndex index;
    std::deque<size_t> ends;  // of each answer in the index
  };
  SuffixIndex& own(const DraftJob& job);
  void draft(DraftJob& job, const SuffixIndex& index, const SuffixIndex::Match& match) const;

  SpeculativeConfig config_;
  std::unordered_map<uint64_t, SuffixIndex> own_;
  std::map<std::string, Answers, std::less<>> answers_;
  std::deque<std::string> arrived_;  // the client of each answer, over all clients
};

}  // namespace fovea
