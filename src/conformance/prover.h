#pragma once
// One run of prove(): choice of rows, outcomes, attribution of failures to cells, conclusions.
#include <deque>
#include <functional>
#include <map>
#include <set>

#include "base/thread_pool.h"
#include "conformance/prepared.h"
#include "conformance/prove.h"
#include "conformance/tally.h"

namespace fovea::conformance {

/// A row of a covering array, or one composed for a cell or a kernel.
struct Row {
  uint64_t number = 0;        ///< encodes array and index; seed of its values
  std::optional<Cell> fixed;  ///< the cell whose array it is from
  bool composed = false;      ///< not from an array: identified by its levels
  Levels levels;
};

/// The allowed rows that differ from `row` in one knob that kernel selection depends on (both head sizes
/// count as one), or in the dtype and one more. Rows with another dtype are also made with the plain cache
/// dtype, since a 16-bit cache dtype may be allowed only with one dtype.
std::vector<Levels> turned(const CaseSpace& space, const Levels& row);
/// Other rows whose cases have the same lengths as that of `row` for the same number.
std::vector<Levels> of_the_same_lengths(const CaseSpace& space, const Levels& row);

class Prover {
 public:
  Prover(const BackendInfo& info, const BackendRegistry::Factory& create, const ProveOptions& options);
  Result<BackendReport> run();

 private:
  /// Each thread has its own.
  struct Worker {
    Worker(std::unique_ptr<AttentionBackend> made, Machine* gpu) : backend(std::move(made)), pools(gpu) {}
    std::unique_ptr<AttentionBackend> backend;
    Pools pools;
  };
  /// The outcome of a row.
  struct Outcome {
    Prepared prepared;
    std::vector<bool> proves;  ///< of cells_
    Attempt attempt;           ///< worst errors and kernels of all instruction sets, the failure of the first
    std::string isa;           ///< the first that failed
  };

  // prove_rows.cc: rows for cells
  std::vector<Row> rows_of(uint64_t array, const std::optional<Cell>& fixed) const;
  std::vector<Row> few_of(const std::vector<Row>& rows) const;
  Row compose(Levels levels);
  Status replay();
  void prove_claimed();
  void prove_quickly();
  void prove_lacking();
  void prove_more(size_t cell, const std::vector<Row>& rows);
  /// Rows for a target with too few cases, and the number of cases still lacking.
  struct Want {
    std::vector<Levels> rows;  ///< at least one
    std::function<int()> lacking;
    int rounds = 6;
  };
  void satisfy(const std::vector<Want>& wants);
  std::vector<Levels> reaching(const std::vector<Levels>& rows,
                               const std::function<bool(const KernelName&)>& wanted);
  void prove_own_kernels();
  std::vector<Levels> plain_rows(size_t cell, Phase phase);
  int64_t counted(size_t cell, Phase phase) const;
  bool asks(size_t cell, Phase phase) const;
  bool concerns(const Cell& cell) const;
  bool enough(size_t cell) const;

  // prove_kernels.cc: rows for kernels
  std::vector<KernelName> thin_kernels() const;
  int64_t right_cases(const KernelName& name) const;
  void reach_each_kernel();
  std::vector<const KernelTally*> siblings_of(const KernelName& kernel) const;
  std::vector<Levels> rows_beside(const std::vector<KernelName>& kernels, size_t count, bool light) const;
  void reach(const std::vector<KernelName>& wanted, const std::vector<Levels>& rows);
  void prove_each_kernel();
  void prove_kernel(size_t kernel);
  void prove_thin_kernels();
  int lacking_of_kernel(size_t kernel, size_t cell) const;
  std::vector<Levels> rows_for(size_t kernel, size_t cell) const;
  std::vector<Levels> light_rows(const std::vector<Levels>& rows) const;
  std::optional<Levels> with_cell(const Levels& row, const Cell& cell) const;

  // prove.cc: running them
  uint64_t array(uint64_t k) const;
  int needed() const { return cases_needed(options_.quick); }
  std::string place() const;
  bool lost() const;
  bool stopped() const;
  Status check_machine() const;
  Prepared prepared(const Row& row, Pools& pools) const;
  std::vector<bool> proves_of(const Prepared& p) const;
  void evaluate(const std::vector<Row>& rows);
  void take(const Row& row, Outcome& outcome);
  void find_who_lost(const std::vector<Row>& rows, size_t first, const std::vector<Outcome>& outcomes);
  std::vector<KernelName> kernels_of(const Levels& levels, int worker);
  std::vector<std::vector<KernelName>> kernels_of_each(const std::vector<Levels>& rows);
  void try_no_sequences();

  // prove_blame.cc: attribution of failures
  std::string failure_of(const Row& row, const std::string& isa, std::vector<bool>* proves = nullptr);
  Row shrink(Row row, const std::string& isa);
  void blame(const Row& row, const Outcome& outcome);
  std::vector<bool> guilty_of(const Row& small, const std::vector<bool>& proves);

  // prove_conclude.cc: conclusions for each cell and kernel
  void conclude();
  CellProof proof_of(size_t cell);
  std::string why_unproven(size_t cell);
  std::string thin_kernel(size_t cell) const;
  std::optional<Request> request_for(const Cell& cell);
  CellProof refusal_of(const Cell& cell);
  void conclude_kernels();
  void find_kernels_that_never_ran();

  const BackendInfo& info_;
  ProveOptions options_;
  CaseSpace space_;
  std::vector<Cell> cells_;
  ThreadPool team_;
  std::deque<Worker> workers_;
  Tally tally_;
  std::vector<int64_t> wrong_;               ///< failed cases of each cell
  std::vector<std::string> blame_;           ///< why a cell failed
  std::vector<std::vector<size_t>> causes_;  ///< guilty cells of each failure that has some
  int searched_ = 0;                         ///< failures whose cause was searched
  std::set<uint64_t> tried_;                 ///< cases without a fixed cell
  /// Cells and phases that no kernel of the row's own families serves.
  std::set<std::pair<size_t, Phase>> not_own_;
  /// Cells and phases in which no case depends on the value: a single decode row sees the same keys without a
  /// causal mask.
  std::set<std::pair<size_t, Phase>> no_part_;
  uint64_t composed_ = 0;
  int64_t total_ = 0;
  std::optional<Row> lost_by_;  ///< the case that made the device unusable
  BackendReport report_;
};

}  // namespace fovea::conformance
