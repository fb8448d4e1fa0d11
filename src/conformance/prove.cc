#include "conformance/prove.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <set>

#include "conformance/prepared.h"
#include "conformance/refusal.h"

namespace fovea::conformance {
namespace {

constexpr int kRowBits = 12;     // of a case's number; the others are the seed
constexpr uint64_t kArrays = 2;  // that a full run goes through, each with other values
constexpr uint64_t kArraysPerSeed = 16;
constexpr int kCasesFull = 32, kCasesQuick = 2;
constexpr size_t kBatch = 64;  // cases that are held at a time, and as many more as keep all threads at work
constexpr size_t kBatchOfThread = 16;
constexpr int kMaxShrunk = 12;  // failures whose cause is searched for

/// A row of a covering array.
struct Row {
  uint64_t number = 0;
  std::optional<Cell> fixed;
  Levels levels;
};

/// What became of it.
struct Outcome {
  std::vector<bool> proves;  // of cells_
  Errors worst;
  std::string failure, isa;  // of the first instruction set that failed
};

/// Each thread has its own.
struct Worker {
  Worker(std::unique_ptr<AttentionBackend> made, Machine* gpu) : backend(std::move(made)), pools(gpu) {}
  std::unique_ptr<AttentionBackend> backend;
  Pools pools;
};

class Prover {
 public:
  Prover(const BackendInfo& info, const BackendRegistry::Factory& create, const ProveOptions& options)
      : info_(info),
        options_(options),
        space_(info, options.device),
        cells_(cells(info.capability)),
        team_(options.threads),
        right_(cells_.size(), 0),
        wrong_(cells_.size(), 0),
        worst_(cells_.size()),
        blame_(cells_.size()) {
    for (int i = 0; i < team_.size(); ++i)
      workers_.emplace_back(create(), options.machine);
    report_.proof.name = info.name;
    report_.proof.version = info.version;
  }

  Result<BackendReport> run() {
    const auto start = std::chrono::steady_clock::now();
    if (options_.replay) {
      FOVEA_RETURN_IF_ERROR(replay());
    } else {
      if (!options_.only_cell) try_no_sequences();
      if (!options_.only_cell || options_.only_cell->claimed) prove_claimed();
      FOVEA_RETURN_IF_ERROR(check_machine());
      conclude();
    }
    FOVEA_RETURN_IF_ERROR(check_machine());
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  /// Where a case ran.
  std::string place() const {
    return options_.machine != nullptr ? describe(options_.device) : std::string(to_string(current_isa()));
  }

  /// Once the device is lost, nothing else runs on it.
  bool lost() const { return options_.machine != nullptr && !options_.machine->fault(); }

  Status check_machine() const {
    if (!lost()) return {};
    const Error fault = options_.machine->fault().error();
    const std::string by = lost_by_ ? "case " + std::to_string(lost_by_->number) : "a case";
    return Error{ErrorCode::internal,
                 info_.label() + ": " + by + " made the GPU unusable: " + fault.message +
                     "; run compute-sanitizer fovea conformance --device cuda --backend " +
                     std::string(info_.name) +
                     (lost_by_ && lost_by_->fixed ? " --cell " + lost_by_->fixed->id() : "") +
                     (lost_by_ ? " --case " + std::to_string(lost_by_->number) : "")};
  }

  bool concerns(const Cell& cell) const {
    return !options_.only_cell || options_.only_cell->id() == cell.id();
  }

  std::vector<Row> rows_of(uint64_t array, const std::optional<Cell>& fixed) const {
    Levels levels;
    if (fixed)
      if (const auto found = space_.fixed_to(*fixed)) levels = *found;
    std::vector<Row> rows;
    for (Levels& row : space_.rows(array, levels))
      if (const uint64_t index = rows.size() + 1; index < (1u << kRowBits))
        rows.push_back({array << kRowBits | index, fixed, std::move(row)});
    return rows;
  }

  uint64_t array(uint64_t k) const { return options_.seed * kArraysPerSeed + k; }

  Status replay() {
    const uint64_t number = *options_.replay;
    std::vector<Row> rows = rows_of(number >> kRowBits, options_.only_cell);
    std::erase_if(rows, [&](const Row& row) { return row.number != number; });
    if (rows.empty())
      return invalid("case " + std::to_string(number) + " does not exist for " + std::string(info_.name) +
                     (options_.only_cell ? " with this cell" : "") +
                     "; give the number and the cell that a failure printed");
    evaluate(rows);
    return {};
  }

  void prove_claimed() {
    if (options_.quick) {
      prove_quickly();
    } else {
      for (uint64_t k = 0; k < (options_.only_cell ? 1 : kArrays) && !lost(); ++k)
        evaluate(rows_of(array(k), options_.only_cell));
    }
    if (!options_.only_cell) prove_lacking();
  }

  /// Rows of its own for each cell that has too few right cases, some for each at a time.
  void prove_lacking() {
    struct More {
      std::vector<Row> rows;
      size_t at = 0;
    };
    std::map<size_t, More> more;  // by cell
    while (!lost()) {
      std::vector<size_t> cells, fresh;
      for (size_t i = 0; i < cells_.size() && cells.size() < kBatch; ++i) {
        if (!cells_[i].claimed || enough(i) || !space_.fixed_to(cells_[i])) continue;
        const auto found = more.find(i);
        if (found != more.end() && found->second.at == found->second.rows.size()) continue;
        cells.push_back(i);
        if (found == more.end()) fresh.push_back(i);
      }
      if (cells.empty()) return;
      std::vector<std::vector<Row>> made(fresh.size());
      team_.parallel_tasks(static_cast<int64_t>(fresh.size()),
                           [&](int64_t i, int) { made[i] = rows_of(array(0), cells_[fresh[i]]); });
      for (size_t i = 0; i < fresh.size(); ++i)
        more[fresh[i]].rows = std::move(made[i]);
      std::vector<Row> batch;
      for (const size_t i : cells) {
        More& m = more[i];
        const size_t end = std::min(m.rows.size(), m.at + static_cast<size_t>(needed() - right_[i]));
        batch.insert(batch.end(), m.rows.begin() + static_cast<std::ptrdiff_t>(m.at),
                     m.rows.begin() + static_cast<std::ptrdiff_t>(end));
        m.at = end;
        if (batch.size() >= kBatch * 2) break;
      }
      evaluate(batch);
    }
  }

  /// Each level of each knob, and of the other rows those that cells need.
  void prove_quickly() {
    std::vector<Row> rows = rows_of(array(0), options_.only_cell);
    const std::vector<Row> few = few_of(rows);
    evaluate(few);
    for (const Row& row : few)
      std::erase_if(rows, [&](const Row& other) { return other.number == row.number; });
    for (size_t i = 0; i < cells_.size(); ++i) {
      if (!cells_[i].claimed || !concerns(cells_[i]) || enough(i)) continue;
      const auto fixed = space_.fixed_to(cells_[i]);
      if (!fixed) continue;
      std::vector<Row> with_it = rows;
      std::erase_if(with_it, [&](const Row& row) {
        for (size_t k = 0; k < row.levels.size(); ++k)
          if ((*fixed)[k] != kUnset && (*fixed)[k] != row.levels[k]) return true;
        return tried_.contains(row.number);
      });
      prove_more(i, with_it);
    }
  }

  /// As many of `rows` as are lacking, as long as that helps: not every case of a value depends on it, and
  /// some are wrong for the sake of another cell.
  void prove_more(size_t cell, const std::vector<Row>& rows) {
    for (size_t at = 0; at < rows.size() && !enough(cell);) {
      const auto lacking = static_cast<size_t>(needed() - right_[cell]);
      const size_t end = std::min(rows.size(), at + lacking);
      evaluate(
          {rows.begin() + static_cast<std::ptrdiff_t>(at), rows.begin() + static_cast<std::ptrdiff_t>(end)});
      at = end;
    }
  }

  int needed() const { return cases_needed(options_.quick); }
  /// More cases would not help a cell that is blamed, or of which none is right.
  bool enough(size_t cell) const {
    return right_[cell] >= needed() || !blame_[cell].empty() ||
           (right_[cell] == 0 && wrong_[cell] >= 4 * needed());
  }

  /// Rows, in their order, that have each level of each knob twice as far as there are so many.
  std::vector<Row> few_of(const std::vector<Row>& rows) const {
    std::map<std::pair<size_t, int>, int> seen;
    std::vector<Row> few;
    for (const Row& row : rows) {
      bool wanted = false;
      for (size_t k = 0; k < row.levels.size(); ++k)
        wanted |= seen[{k, row.levels[k]}] < kCasesQuick;
      if (!wanted) continue;
      for (size_t k = 0; k < row.levels.size(); ++k)
        ++seen[{k, row.levels[k]}];
      few.push_back(row);
    }
    return few;
  }

  Prepared prepared(const Row& row, Pools& pools) const {
    return prepare(space_.make(row.levels, row.number), pools.of(1));
  }

  std::vector<bool> proves_of(const Prepared& p) const {
    std::vector<bool> out;
    for (const Cell& cell : cells_)
      out.push_back(cell.claimed && proves(p.c, p.uses, cell, options_.device));
    return out;
  }

  void evaluate(const std::vector<Row>& rows) {
    total_ += static_cast<int64_t>(rows.size());
    const size_t batch = std::max(kBatch, kBatchOfThread * workers_.size());
    for (size_t first = 0; first < rows.size() && !lost(); first += batch) {
      const size_t count = std::min(batch, rows.size() - first);
      std::vector<Prepared> prepared_cases(count);
      std::vector<Outcome> outcomes(count);
      team_.parallel_tasks(static_cast<int64_t>(count), [&](int64_t i, int worker) {
        prepared_cases[i] = prepared(rows[first + i], workers_[worker].pools);
        outcomes[i].proves = proves_of(prepared_cases[i]);
      });
      each_isa(info_, [&] {
        report_.runs += static_cast<int64_t>(count);
        team_.parallel_tasks(static_cast<int64_t>(count), [&](int64_t i, int worker) {
          Worker& w = workers_[worker];
          Outcome& outcome = outcomes[i];
          const std::string failure = attempt(*w.backend, prepared_cases[i], w.pools, outcome.worst);
          if (failure.empty() || !outcome.failure.empty()) return;
          outcome.failure = failure;
          outcome.isa = to_string(current_isa());
        });
      });
      if (lost()) return find_who_lost(rows, first, outcomes);
      for (size_t i = 0; i < count; ++i)
        take(rows[first + i], outcomes[i]);
      if (options_.progress) options_.progress(report_.cases, total_);
    }
  }

  /// The others were not run any more, or failed with it.
  void find_who_lost(const std::vector<Row>& rows, size_t first, const std::vector<Outcome>& outcomes) {
    const std::string fault = options_.machine->fault().error().message;
    const auto says = [](const Outcome& outcome, std::string_view text) {
      return outcome.failure.find(text) != std::string::npos;
    };
    // It may have shown in a call before the one that the fault is known from.
    for (size_t i = 0; i < outcomes.size() && !lost_by_; ++i)
      if (says(outcomes[i], fault) || says(outcomes[i], "cudaError")) lost_by_ = rows[first + i];
  }

  void take(const Row& row, const Outcome& outcome) {
    ++report_.cases;
    if (!row.fixed) tried_.insert(row.number);
    if (!outcome.failure.empty()) {
      ++report_.failed_cases;
      for (size_t i = 0; i < cells_.size(); ++i)
        wrong_[i] += outcome.proves[i];
      blame(row, outcome);
      return;
    }
    if (outcome.worst.o > report_.worst.o) report_.worst_case = row.number;
    grow(report_.worst, outcome.worst);
    for (size_t i = 0; i < cells_.size(); ++i) {
      if (!outcome.proves[i]) continue;
      ++right_[i];
      grow(worst_[i], outcome.worst);
    }
  }

  static void grow(Errors& errors, const Errors& more) {
    errors.o = std::max(errors.o, more.o);
    errors.lse = std::max(errors.lse, more.lse);
  }

  // --- Whose fault a failure is

  /// The failure of `row` on `isa`, and what that case proves.
  std::string failure_of(const Row& row, const std::string& isa, std::vector<bool>* proves = nullptr) {
    const Prepared p = prepared(row, workers_[0].pools);
    if (proves != nullptr) *proves = proves_of(p);
    std::string failure;
    Errors unused;
    each_isa(info_, [&] {
      if (failure.empty() && to_string(current_isa()) == isa)
        failure = attempt(*workers_[0].backend, p, workers_[0].pools, unused);
    });
    return failure;
  }

  /// As many plain levels as still fail: of many knobs at once first, as most have no part in it.
  Row shrink(Row row, const std::string& isa) {
    const Levels plain = space_.plain();
    for (size_t width = row.levels.size() / 2; width > 0;) {
      bool changed = false;
      for (size_t first = 0; first < row.levels.size(); first += width) {
        Row plainer = row;
        for (size_t k = first; k < std::min(first + width, row.levels.size()); ++k)
          plainer.levels[k] = plain[k];
        if (plainer.levels == row.levels || !space_.allowed(plainer.levels) ||
            failure_of(plainer, isa).empty())
          continue;
        row = plainer;
        changed = true;
      }
      if (width > 1 || !changed) width /= 2;
    }
    return row;
  }

  void blame(const Row& row, const Outcome& outcome) {
    // A failure that an earlier one explains is not searched again.
    for (const std::vector<size_t>& cause : causes_)
      if (std::all_of(cause.begin(), cause.end(), [&](size_t i) { return outcome.proves[i]; })) return;
    CaseFailure failure{row.number, row.fixed, {}, place(), outcome.failure, space_.describe(row.levels)};
    if (options_.machine == nullptr) failure.isa = outcome.isa;
    std::vector<bool> guilty = outcome.proves;
    if (searched_ < kMaxShrunk && !options_.replay) {
      const Row small = shrink(row, outcome.isa);
      std::vector<bool> proves;
      failure.what = failure_of(small, outcome.isa, &proves);
      failure.what += "in " + space_.make(small.levels, small.number).problem.describe();
      failure.levels = space_.describe(small.levels);
      guilty = guilty_of(small, proves);
      // A case without any visible key fails without proving anything.
      if (std::find(guilty.begin(), guilty.end(), true) == guilty.end()) guilty = outcome.proves;
    }
    std::vector<size_t> cause;
    for (size_t i = 0; i < cells_.size(); ++i)
      if (guilty[i]) {
        cause.push_back(i);
        failure.cells.push_back(cells_[i].id());
        if (blame_[i].empty()) blame_[i] = "case " + std::to_string(row.number) + ": " + failure.what;
      }
    // One without cells explains no other failure.
    if (!cause.empty()) causes_.push_back(cause);
    ++searched_;
    if (options_.failed) options_.failed(failure);
    report_.failures.push_back(std::move(failure));
  }

  /// What the smallest failing case has and the plain one has not; all of it when the plain one fails too.
  std::vector<bool> guilty_of(const Row& small, const std::vector<bool>& proves) {
    const Levels plain = space_.plain();
    if (!space_.allowed(plain) || small.levels == plain) return proves;
    Row row = small;
    row.levels = plain;
    std::vector<bool> innocent = proves_of(prepared(row, workers_[0].pools));
    // What cannot do without the one thing that can be made plain is not to blame for it: a graph of decodes
    // is a decode.
    std::vector<Row> plainer;
    for (size_t k = 0; k < plain.size(); ++k) {
      row.levels = small.levels;
      row.levels[k] = plain[k];
      if (row.levels != small.levels && space_.allowed(row.levels)) plainer.push_back(row);
    }
    if (plainer.size() == 1) {
      const std::vector<bool> also = proves_of(prepared(plainer[0], workers_[0].pools));
      for (size_t i = 0; i < also.size(); ++i)
        innocent[i] = innocent[i] || also[i];
    }
    std::vector<bool> guilty = proves;
    for (size_t i = 0; i < guilty.size(); ++i)
      guilty[i] = proves[i] && !innocent[i];
    return std::find(guilty.begin(), guilty.end(), true) == guilty.end() ? proves : guilty;
  }

  /// A step without any sequence, which an engine may run.
  void try_no_sequences() {
    if (!space_.allowed(space_.plain())) return;
    Case c = space_.make(space_.plain(), 1);
    c.problem.seqs.clear();
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      if (!info_.capability.phases.has(phase)) continue;
      c.problem.phase = phase;
      each_isa(info_, [&] {
        Machine& machine = workers_[0].pools.machine(1);
        const Output out = conformance::run(*workers_[0].backend, c.problem, c.layout, machine);
        if (out.error.empty()) return;
        const std::string id = "phases=" + std::string(to_string(phase));
        for (size_t i = 0; i < cells_.size(); ++i)
          if (cells_[i].id() == id) blame_[i] = "a step without sequences: " + out.error;
        report_.failures.push_back({0, {}, {id}, place(), out.error, "no sequences"});
        if (options_.failed) options_.failed(report_.failures.back());
      });
    }
  }

  // --- What is told of each cell

  void conclude() {
    for (size_t i = 0; i < cells_.size(); ++i) {
      const Cell& cell = cells_[i];
      if (!concerns(cell) || !cell.stated || (cell.claimed && !can_be_proven(cell, options_.device)))
        continue;
      report_.proof.cells.push_back(cell.claimed ? proof_of(i) : refusal_of(cell));
    }
  }

  CellProof proof_of(size_t i) {
    CellProof proof{cells_[i].id(), CellStatus::proven, right_[i], worst_[i].o, worst_[i].lse, ""};
    if (!blame_[i].empty())
      proof.reason = blame_[i];
    else if (right_[i] < needed())
      proof.reason = why_unproven(i);
    if (!proof.reason.empty()) proof.status = CellStatus::failed;
    return proof;
  }

  /// Of a claim that too few right cases back.
  std::string why_unproven(size_t i) {
    if (wrong_[i] > 0)
      return "only " + std::to_string(right_[i]) + " of " + std::to_string(right_[i] + wrong_[i]) +
             " cases were right; see those that failed";
    if (right_[i] > 0)
      return "only " + std::to_string(right_[i]) + " cases depend on it; " + std::to_string(needed()) +
             " are needed";
    const auto request = space_.allowed(space_.plain()) ? request_for(cells_[i]) : std::nullopt;
    if (request) {
      const auto bytes = workers_[0].backend->workspace_bytes(request->spec, {1, 1, 1, 1});
      if (!bytes) return "claimed, but the backend refuses it: " + bytes.error().message;
    }
    return "claimed, but no case of these tests depends on it";
  }

  std::optional<Request> request_for(const Cell& cell) {
    return request_of(info_, cell, space_.make(space_.plain(), 1).problem.spec, options_.device);
  }

  CellProof refusal_of(const Cell& cell) {
    CellProof proof{cell.id(), CellStatus::unasked, 0, 0, 0, "nothing asks for it"};
    Machine& machine = workers_[0].pools.machine(1);
    if (!space_.allowed(space_.plain())) {
      proof.status = CellStatus::failed;
      proof.reason = "there is no plain case that it serves";
      return proof;
    }
    const auto request = request_for(cell);
    if (!request) return proof;
    proof.cases = 1;
    const std::string wrong = find_acceptance(info_, *workers_[0].backend, *request, machine);
    proof.reason = wrong.empty() ? request->expected.front() : wrong;
    proof.status = wrong.empty() ? CellStatus::refused : CellStatus::failed;
    return proof;
  }

  const BackendInfo& info_;
  ProveOptions options_;
  CaseSpace space_;
  std::vector<Cell> cells_;
  ThreadPool team_;
  std::deque<Worker> workers_;
  std::vector<int64_t> right_, wrong_;  // cases of each cell
  std::vector<Errors> worst_;
  std::vector<std::string> blame_;           // why a cell failed
  std::vector<std::vector<size_t>> causes_;  // cells of each failure that has some
  int searched_ = 0;                         // failures
  std::set<uint64_t> tried_;                 // cases without a fixed cell
  int64_t total_ = 0;
  std::optional<Row> lost_by_;  // the case that made the device unusable
  BackendReport report_;
};

}  // namespace

int64_t BackendReport::count(CellStatus status) const {
  return std::count_if(proof.cells.begin(), proof.cells.end(),
                       [&](const CellProof& cell) { return cell.status == status; });
}

int cases_needed(bool quick) {
  return quick ? kCasesQuick : kCasesFull;
}

Result<BackendReport> prove(const BackendInfo& info, const BackendRegistry::Factory& create,
                            const ProveOptions& options) {
  return Prover(info, create, options).run();
}

}  // namespace fovea::conformance
