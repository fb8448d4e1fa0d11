#pragma once
// Counts of passing cases, for each cell of a row and for each kernel.
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/case_space.h"
#include "conformance/run.h"

namespace fovea::conformance {

/// A passing case, as it is counted.
struct CountedCase {
  uint64_t number;  ///< seed of its values and lengths
  const Levels& levels;
  const Problem& problem;
  const std::vector<bool>& proves;  ///< [cells]
  const std::vector<KernelName>& launched;
  Errors errors;
};

/// Cases of one phase by the family of kernels that ran: a case that launched two families counts for both.
using FamilyCounts = std::map<std::string, int64_t>;
inline constexpr int kPhases = 2;

struct CellTally {
  int64_t cases = 0;
  std::array<FamilyCounts, kPhases> by_phase;          ///< [Phase]
  std::array<std::vector<Levels>, kPhases> witnesses;  ///< [Phase] the first rows on the row's own kernels
  Errors worst;
};

/// A row and the number of its case; none: number 0.
struct ShownBy {
  Levels levels;
  uint64_t number = 0;
};

struct KernelTally {
  KernelName kernel;
  int64_t cases = 0;
  int64_t split_cases = 0;        ///< cases in which some row's keys span two or more splits
  std::vector<int64_t> cases_of;  ///< [cells]
  std::vector<ShownBy> shown;     ///< [cells] the first case that proved it on this kernel
  std::vector<Levels> witnesses;  ///< the first rows that reached it
};

class Tally {
 public:
  Tally(size_t num_cells, const std::vector<std::string_view>& families);

  void take(const CountedCase& c);

  const CellTally& cell(size_t i) const { return cells_[i]; }
  const std::vector<KernelTally>& kernels() const { return kernels_; }
  /// Whether the row claims the capabilities of kernels of this family.
  bool is_own(std::string_view family) const;
  /// Cases of cell `i` in `phase` that reached the row's own kernels.
  int64_t own(size_t i, Phase phase) const;
  /// Cases of cell `i` in `phase`, on any kernels.
  int64_t in_phase(size_t i, Phase phase) const;
  /// The other families that cases of cell `i` in `phase` reached, "sm80, simt"; "" = none.
  std::string others(size_t i, Phase phase) const;

 private:
  KernelTally& of(const KernelName& kernel);

  std::vector<std::string> families_;
  std::vector<CellTally> cells_;
  std::vector<KernelTally> kernels_;  ///< in the order in which they were first reached
};

/// Whether the keys of some row of `problem` span two or more splits of `kernel`.
bool meets_splits(const Problem& problem, const KernelName& kernel);

}  // namespace fovea::conformance
