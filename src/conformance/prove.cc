#include "conformance/prove.h"

#include <algorithm>
#include <chrono>

#include "base/thread_pool.h"
#include "conformance/prover.h"
#include "fovea/attention.h"

namespace fovea::conformance {
namespace {

constexpr int kCasesFull = 32, kCasesQuick = 2;
constexpr int kPhaseFull = 16, kPhaseQuick = 1;
constexpr int kKernelFull = 2, kKernelQuick = 0;
constexpr uint64_t kArraysPerSeed = 16;
constexpr size_t kBatch = 64;  // cases held at a time, or more if needed to keep all threads busy
constexpr size_t kBatchOfThread = 16;

}  // namespace

Prover::Prover(const BackendInfo& info, const BackendRegistry::Factory& create, const ProveOptions& options)
    : info_(info),
      options_(options),
      space_(info, options.device),
      cells_(cells(info.capability)),
      team_(options.threads),
      tally_(cells_.size(), info.families),
      wrong_(cells_.size(), 0),
      blame_(cells_.size()) {
  for (int i = 0; i < team_.size(); ++i)
    workers_.emplace_back(create(), options.machine);
  report_.proof.name = info.name;
  report_.proof.version = info.version;
}

Result<BackendReport> Prover::run() {
  const auto start = std::chrono::steady_clock::now();
  if (options_.replay) {
    FOVEA_RETURN_IF_ERROR(replay());
  } else {
    if (!options_.only_cell) try_no_sequences();
    if (!options_.only_cell || options_.only_cell->claimed) prove_claimed();
    FOVEA_RETURN_IF_ERROR(check_machine());
    if (!stopped()) conclude();
  }
  FOVEA_RETURN_IF_ERROR(check_machine());
  report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::move(report_);
}

uint64_t Prover::array(uint64_t k) const {
  return options_.seed * kArraysPerSeed + k;
}

/// The device or instruction sets that cases run on.
std::string Prover::place() const {
  return options_.machine != nullptr ? describe(options_.device) : std::string(to_string(current_isa()));
}

/// Whether the device is lost; nothing else runs on it then.
bool Prover::lost() const {
  return options_.machine != nullptr && !options_.machine->fault();
}

/// Whether to stop trying cases.
bool Prover::stopped() const {
  return lost() || (options_.stop_at_failure && !report_.failures.empty());
}

Status Prover::check_machine() const {
  if (!lost()) return {};
  const Error fault = options_.machine->fault().error();
  const std::string by = lost_by_ ? "case " + std::to_string(lost_by_->number) : "a case";
  std::string again =
      "compute-sanitizer fovea conformance --device cuda --backend " + std::string(info_.name);
  if (lost_by_) {
    if (lost_by_->fixed) again += " --cell " + lost_by_->fixed->id();
    again += " --case " + std::to_string(lost_by_->number);
    if (lost_by_->composed) again += " --row " + space_.code(lost_by_->levels);
  }
  return Error{ErrorCode::internal,
               info_.label() + ": " + by + " made the GPU unusable: " + fault.message + "; run " + again};
}

Prepared Prover::prepared(const Row& row, Pools& pools) const {
  return prepare(space_.make(row.levels, row.number), pools.of(1));
}

std::vector<bool> Prover::proves_of(const Prepared& p) const {
  std::vector<bool> out;
  for (const Cell& cell : cells_)
    out.push_back(cell.claimed && proves(p.c, p.uses, cell, options_.device));
  return out;
}

void Prover::evaluate(const std::vector<Row>& rows) {
  total_ += static_cast<int64_t>(rows.size());
  const size_t batch = std::max(kBatch, kBatchOfThread * workers_.size());
  for (size_t first = 0; first < rows.size() && !stopped(); first += batch) {
    const size_t count = std::min(batch, rows.size() - first);
    std::vector<Outcome> outcomes(count);
    team_.parallel_tasks(static_cast<int64_t>(count), [&](int64_t i, int worker) {
      outcomes[i].prepared = prepared(rows[first + i], workers_[worker].pools);
      outcomes[i].proves = proves_of(outcomes[i].prepared);
    });
    each_isa(info_, [&] {
      report_.runs += static_cast<int64_t>(count);
      team_.parallel_tasks(static_cast<int64_t>(count), [&](int64_t i, int worker) {
        Worker& w = workers_[worker];
        Outcome& outcome = outcomes[i];
        Attempt one = attempt(*w.backend, outcome.prepared, w.pools);
        Attempt& all = outcome.attempt;
        all.worst.o = std::max(all.worst.o, one.worst.o);
        all.worst.lse = std::max(all.worst.lse, one.worst.lse);
        all.launched.insert(all.launched.end(), one.launched.begin(), one.launched.end());
        if (one.failure.empty() || !all.failure.empty()) return;
        all.failure = std::move(one.failure);
        outcome.isa = to_string(current_isa());
      });
    });
    if (lost()) return find_who_lost(rows, first, outcomes);
    for (size_t i = 0; i < count && !stopped(); ++i)
      take(rows[first + i], outcomes[i]);
    if (options_.progress) options_.progress(report_.cases, total_);
  }
}

/// Finds the case that made the device unusable: later cases did not run, or failed with it.
void Prover::find_who_lost(const std::vector<Row>& rows, size_t first, const std::vector<Outcome>& outcomes) {
  const std::string fault = options_.machine->fault().error().message;
  const auto says = [](const Outcome& outcome, std::string_view text) {
    return outcome.attempt.failure.find(text) != std::string::npos;
  };
  // The error may have appeared in a call before the one that reported the fault.
  for (size_t i = 0; i < outcomes.size() && !lost_by_; ++i)
    if (says(outcomes[i], fault) || says(outcomes[i], "cudaError")) lost_by_ = rows[first + i];
}

void Prover::take(const Row& row, Outcome& outcome) {
  ++report_.cases;
  if (!row.fixed && !row.composed) tried_.insert(row.number);
  const Attempt& attempt = outcome.attempt;
  if (!attempt.failure.empty()) {
    ++report_.failed_cases;
    for (size_t i = 0; i < cells_.size(); ++i)
      wrong_[i] += outcome.proves[i];
    blame(row, outcome);
    return;
  }
  if (attempt.worst.o > report_.worst.o) report_.worst_case = row.number;
  report_.worst.o = std::max(report_.worst.o, attempt.worst.o);
  report_.worst.lse = std::max(report_.worst.lse, attempt.worst.lse);
  tally_.take(
      {row.number, row.levels, outcome.prepared.c.problem, outcome.proves, attempt.launched, attempt.worst});
}

/// The kernels that a case of `levels` reaches; the case runs, but is not judged.
std::vector<KernelName> Prover::kernels_of(const Levels& levels, int worker) {
  const Case c = space_.make(levels, 1);
  Worker& w = workers_[static_cast<size_t>(worker)];
  return conformance::run(*w.backend, c.problem, c.layout, w.pools.machine(c.threads)).launched;
}

/// kernels_of() each row; empty for the remaining rows if the run is stopped.
std::vector<std::vector<KernelName>> Prover::kernels_of_each(const std::vector<Levels>& rows) {
  std::vector<std::vector<KernelName>> kernels(rows.size());
  team_.parallel_tasks(static_cast<int64_t>(rows.size()), [&](int64_t i, int worker) {
    const auto row = static_cast<size_t>(i);
    if (!stopped()) kernels[row] = kernels_of(rows[row], worker);
  });
  return kernels;
}

/// Tries a step without sequences, which an engine may run.
void Prover::try_no_sequences() {
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
      report_.failures.push_back({0, {}, "", {id}, place(), out.error, "no sequences"});
      if (options_.failed) options_.failed(report_.failures.back());
    });
  }
}

int64_t BackendReport::count(CellStatus status) const {
  return std::count_if(proof.cells.begin(), proof.cells.end(),
                       [&](const CellProof& cell) { return cell.status == status; });
}

int cases_needed(bool quick) {
  return quick ? kCasesQuick : kCasesFull;
}

int cases_needed_of_phase(bool quick) {
  return quick ? kPhaseQuick : kPhaseFull;
}

int cases_needed_of_kernel(bool quick) {
  return quick ? kKernelQuick : kKernelFull;
}

Result<BackendReport> prove(const BackendInfo& info, const BackendRegistry::Factory& create,
                            const ProveOptions& options) {
  return Prover(info, create, options).run();
}

}  // namespace fovea::conformance
