#pragma once
// How many drafts a step should have, from what steps took and gave: with few sequences more rows cost
// little, with many they cost more than they bring.
#include <array>
#include <unordered_map>

#include "fovea/speculative.h"

namespace fovea {

class DraftTable {
 public:
  struct Choice {
    int drafts = 0;      ///< of each sequence
    bool alone = false;  ///< one sequence has them, to find out
  };
  /// `one_finds_out`: for drafters that first compute all that they have not seen of a sequence. Where no
  /// drafts are best, one sequence has some now and then, and all of them only once its drafts would win.
  explicit DraftTable(bool one_finds_out = false) : one_finds_out_(one_finds_out) {}

  /// Drafts of each of `decodes` sequences, up to `most`, that give the most tokens a second, as far as is
  /// known; now and then one more or less, to find out: where none is best in two steps, ever more seldom,
  /// and more so where they take long. Before anything is known more rows are taken to cost little.
  Choice choose(int decodes, int most);
  /// A step of `decodes` sequences and a choice of these drafts took `seconds` and gave `tokens` in all.
  void add(int decodes, Choice choice, double seconds, int tokens);
  /// Drafts were verified, and the first `accepted` of them accepted.
  void count(int verified, int accepted);

 private:
  /// Means of late of the steps with a number of drafts.
  struct Steps {
    int count = 0;
    double seconds = 0, tokens = 0;  ///< of a step; of a sequence
  };
  /// A class of numbers of sequences.
  struct Row {
    std::array<Steps, kMaxDrafts + 1> of{};  ///< by drafts
    int best = -1;                           ///< the newest choice, except those that find out
    int choices = 0, every = 0;              ///< since the last one that finds out; until the next
    bool more = false;                       ///< what the last one tried
    bool first = false, again = false;       ///< the first of two steps that find out; the next is the second
    int alone = 0;                           ///< steps left in which one sequence finds out
    int alone_steps = 0, alone_tokens = 0;   ///< those that were made, and what they gave that sequence
    double alone_seconds = 0;                ///< more than steps without drafts
    bool everyone = false;                   ///< the next step finds out with all sequences
  };

  void add_alone(Row& row, int decodes, double seconds, int tokens);
  double seconds(const Row& row, int decodes, int drafts) const;
  double tokens(const Row& row, int drafts) const;

  bool one_finds_out_;
  std::unordered_map<int, Row> rows_;                       // by class
  std::array<double, kMaxDrafts> verified_{}, accepted_{};  // by place, of late
};

}  // namespace fovea
