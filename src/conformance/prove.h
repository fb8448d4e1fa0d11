#pragma once
// Proves a row of the matrix: each claimed cell by cases that depend on it and that reached the row's own
// kernels, each unclaimed cell by its refusal.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attention/columns.h"
#include "conformance/proof.h"
#include "conformance/refusal.h"
#include "conformance/run.h"

namespace fovea::conformance {

/// A case that failed.
struct CaseFailure {
  uint64_t number = 0;             ///< for `replay`; 0 = a check that always runs
  std::optional<Cell> fixed;       ///< the `only_cell` that `replay` needs
  std::string row;                 ///< the `replay_row` that `replay` needs; "" = none
  std::vector<std::string> cells;  ///< ids of the cells to blame: those left in the reduced failing case
  std::string isa;
  std::string what;    ///< the judgement
  std::string levels;  ///< description of the reduced failing case
};

struct ProveOptions {
  DeviceInfo device = {};      ///< that this program runs on
  Machine* machine = nullptr;  ///< where cases run; null = on the CPU
  uint64_t seed = 1;           ///< below 2^48
  /// Cover every level of every knob twice, instead of every pair of levels.
  bool quick = false;
  bool stop_at_failure = false;    ///< stop after the first failing case
  int threads = 0;                 ///< concurrent cases; 0 = one per CPU that this process may use
  std::optional<Cell> only_cell;   ///< one of cells(); cases have its value
  std::optional<uint64_t> replay;  ///< run only this case; needs the only_cell that it was found with
  std::string replay_row;          ///< CaseFailure::row
  std::function<void(int64_t done, int64_t total)> progress = {};
  std::function<void(const CaseFailure&)> failed = {};  ///< called for each failure when it is found
};

struct BackendReport {
  BackendProof proof;
  std::vector<CaseFailure> failures;  ///< the first of each kind
  int64_t cases = 0, runs = 0;        ///< each case runs on every instruction set
  int64_t failed_cases = 0;
  Errors worst;
  uint64_t worst_case = 0;
  double seconds = 0;
  int64_t count(CellStatus status) const;
  /// Whether no cell and no case failed, including failures without a cell to blame.
  bool all_right() const {
    return failed_cases == 0 && failures.empty() && count(CellStatus::failed) == 0 &&
           count(CellStatus::too_few) == 0;
  }
};

/// Passing cases that each claimed cell needs.
int cases_needed(bool quick);
/// Passing cases that each claimed cell needs in each phase on the row's own kernels.
int cases_needed_of_phase(bool quick);
/// Passing cases that a cell needs on each kernel that any of its cases reaches; 0 (not required) if `quick`.
int cases_needed_of_kernel(bool quick);

/// `create` makes the backend of `info`. Errors: a case that does not exist; a case, given by name, that made
/// the device unusable.
Result<BackendReport> prove(const BackendInfo& info, const BackendRegistry::Factory& create,
                            const ProveOptions& options);

}  // namespace fovea::conformance
