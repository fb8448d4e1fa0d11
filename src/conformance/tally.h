#pragma once
// What right cases have shown, of each cell of a row and of each kernel.
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/case_space.h"
#include "conformance/run.h"

namespace fovea::conformance {

/// A right case, as it is counted.
struct CountedCase {
  uint64_t number;  ///< that its values and lengths are drawn from
  const Levels& levels;
  const Problem& problem;
  const std::vector<bool>& proves;  ///< of each cell
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
  int64_t split_cases = 0;        ///< in which some row's keys lie in two or more splits
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
  /// Whether kernels of this family are what the row is a claim about.
  bool is_own(std::string_view family) const;
  /// Cases of cell `i` in `phase` that reached the row's own kernels.
  int64_t own(size_t i, Phase phase) const;
  /// Those that reached any.
  int64_t in_phase(size_t i, Phase phase) const;
  /// The other families that cases of cell `i` in `phase` reached, "sm80, simt"; "" = none.
  std::string others(size_t i, Phase phase) const;

 private:
  KernelTally& of(const KernelName& kernel);

  std::vector<std::string> families_;
  std::vector<CellTally> cells_;
  std::vector<KernelTally> kernels_;  ///< in the order in which they were first reached
};

/// Whether some row of `problem` has keys in two or more splits of `kernel`.
bool meets_splits(const Problem& problem, const KernelName& kernel);

}  // namespace fovea::conformance
