#pragma once
// How many drafts a step should have, from what steps took and gave: with few sequences more rows cost
// little, with many they cost more than they bring.
#include <array>
#include <unordered_map>

#include "fovea/speculative.h"

namespace fovea {

class DraftTable {
 public:
  /// Drafts of each of `decodes` sequences, up to `most`, that give the most tokens a second, as far as is
  /// known; now and then one more or less, to find out: where none is best in two steps, ever more seldom,
  /// and more so where they take long. Before anything is known more rows are taken to cost little.
  int choose(int decodes, int most);
  /// A step of `decodes` sequences and at most `drafts` drafts each took `seconds` and gave `tokens` in all.
  void add(int decodes, int drafts, double seconds, int tokens);
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
  };

  double seconds(const Row& row, int decodes, int drafts) const;
  double tokens(const Row& row, int drafts) const;

  std::unordered_map<int, Row> rows_;                       // by class
  std::array<double, kMaxDrafts> verified_{}, accepted_{};  // by place, of late
};

}  // namespace fovea
