#pragma once
// Proves a row of the matrix: each claimed cell by cases that depend on it and that reached the row's own
// kernels, each other by its refusal.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attention/columns.h"
#include "conformance/proof.h"
#include "conformance/refusal.h"
#include "conformance/run.h"

namespace fovea::conformance {

/// A case that was not right.
struct CaseFailure {
  uint64_t number = 0;             ///< what `replay` takes; 0 = of a check that always runs
  std::optional<Cell> fixed;       ///< the `only_cell` that `replay` needs
  std::string row;                 ///< the `replay_row` that `replay` needs; "" = none
  std::vector<std::string> cells;  ///< ids of those to blame: what is left when all that can is made plain
  std::string isa;
  std::string what;    ///< the judgement
  std::string levels;  ///< what is left, in words
};

struct ProveOptions {
  DeviceInfo device = {};      ///< that this program runs on
  Machine* machine = nullptr;  ///< where cases run; null = on the CPU
  uint64_t seed = 1;           ///< below 2^48
  /// Every level of every knob twice, rather than every pair of levels.
  bool quick = false;
  bool stop_at_failure = false;    ///< after the first case that is wrong nothing else is tried
  int threads = 0;                 ///< cases at a time; 0 = one per CPU that this process may use
  std::optional<Cell> only_cell;   ///< one of cells(); cases have its value
  std::optional<uint64_t> replay;  ///< the case of this number alone; with only_cell as it was found with it
  std::string replay_row;          ///< CaseFailure::row
  std::function<void(int64_t done, int64_t total)> progress = {};
  std::function<void(const CaseFailure&)> failed = {};  ///< as each is found
};

struct BackendReport {
  BackendProof proof;
  std::vector<CaseFailure> failures;  ///< the first of each kind
  int64_t cases = 0, runs = 0;        ///< a case is run on every instruction set
  int64_t failed_cases = 0;
  Errors worst;
  uint64_t worst_case = 0;
  double seconds = 0;
  int64_t count(CellStatus status) const;
  /// No cell failed, and no case either, whether or not a cell is to blame for it.
  bool all_right() const {
    return failed_cases == 0 && failures.empty() && count(CellStatus::failed) == 0 &&
           count(CellStatus::too_few) == 0;
  }
};

/// Cases that each claimed cell needs, all of them right.
int cases_needed(bool quick);
/// Of them, those that each phase of the row needs on its own kernels.
int cases_needed_of_phase(bool quick);
/// Cases that a cell needs on each kernel that any of its cases reaches. 0 of a quick run: not asked.
int cases_needed_of_kernel(bool quick);

/// `create` makes the backend that `info` speaks for. Fails for a case that does not exist, and when a case
/// made the device unusable, by which it names it.
Result<BackendReport> prove(const BackendInfo& info, const BackendRegistry::Factory& create,
                            const ProveOptions& options);

}  // namespace fovea::conformance
