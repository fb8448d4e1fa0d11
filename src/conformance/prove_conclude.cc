// Conclusions for each cell and each kernel.
#include <algorithm>

#include "conformance/prover.h"

namespace fovea::conformance {

void Prover::conclude() {
  for (size_t i = 0; i < cells_.size(); ++i) {
    const Cell& cell = cells_[i];
    if (!concerns(cell) || !cell.stated || (cell.claimed && !can_be_proven(cell, options_.device))) continue;
    report_.proof.cells.push_back(cell.claimed ? proof_of(i) : refusal_of(cell));
  }
  conclude_kernels();
}

CellProof Prover::proof_of(size_t i) {
  const CellTally& tally = tally_.cell(i);
  CellProof proof;
  proof.cell = cells_[i].id();
  proof.status = CellStatus::proven;
  proof.cases = tally.cases;
  proof.prefill = tally.by_phase[static_cast<size_t>(Phase::prefill)];
  proof.decode = tally.by_phase[static_cast<size_t>(Phase::decode)];
  proof.worst_error = tally.worst.o;
  proof.worst_lse_error = tally.worst.lse;
  proof.reason = !blame_[i].empty() ? blame_[i] : why_unproven(i);
  if (!proof.reason.empty()) {
    const bool wrong = !blame_[i].empty() || wrong_[i] > 0 || tally.cases == 0;
    proof.status = wrong ? CellStatus::failed : CellStatus::too_few;
    return proof;
  }
  for (const Phase phase : {Phase::prefill, Phase::decode})
    if (not_own_.contains({i, phase}) && !no_part_.contains({i, phase})) {
      proof.status = CellStatus::other_kernels;
      proof.reason.append(proof.reason.empty() ? "" : "; ")
          .append(to_string(phase))
          .append(": kernels of ")
          .append(tally_.others(i, phase));
    }
  return proof;
}

/// Why a claim has too few passing cases; empty = it has enough.
std::string Prover::why_unproven(size_t i) {
  const int64_t right = tally_.cell(i).cases;
  if (right < needed()) {
    if (wrong_[i] > 0)
      return "only " + std::to_string(right) + " of " + std::to_string(right + wrong_[i]) +
             " cases were right; see those that failed";
    if (right > 0)
      return "only " + std::to_string(right) + " cases depend on it; " + std::to_string(needed()) +
             " are needed";
    const auto request = space_.allowed(space_.plain()) ? request_for(cells_[i]) : std::nullopt;
    if (request) {
      const auto bytes = workers_[0].backend->workspace_bytes(request->spec, {1, 1, 1, 1});
      if (!bytes) return "claimed, but the backend refuses it: " + bytes.error().message;
    }
    return "claimed, but no case of these tests depends on it";
  }
  const int least = cases_needed_of_phase(options_.quick);
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    if (!space_.fixed_to(cells_[i]) || !asks(i, phase) || no_part_.contains({i, phase})) continue;
    if (const int64_t n = counted(i, phase); n < least)
      return "only " + std::to_string(n) + " cases of " + std::string(to_string(phase)) +
             (not_own_.contains({i, phase}) ? "" : " reached the row's own kernels") + "; " +
             std::to_string(least) + " are needed";
  }
  return thin_kernel(i);
}

/// A message for one of the row's own kernels that some cases of the cell reached, but too few; empty = none.
std::string Prover::thin_kernel(size_t i) const {
  const int least = cases_needed_of_kernel(options_.quick);
  if (options_.only_cell) return {};
  for (const KernelTally& kernel : tally_.kernels())
    if (const int64_t n = kernel.cases_of[i]; n > 0 && n < least && tally_.is_own(kernel.kernel.family))
      return "only " + std::to_string(n) + " case on " + kernel.kernel.family + " " + kernel.kernel.instance +
             "; " + std::to_string(least) + " are needed on each kernel that it reaches";
  return {};
}

std::optional<Request> Prover::request_for(const Cell& cell) {
  return request_of(info_, cell, space_.make(space_.plain(), 1).problem.spec, options_.device);
}

CellProof Prover::refusal_of(const Cell& cell) {
  CellProof proof;
  proof.cell = cell.id();
  proof.status = CellStatus::unasked;
  proof.reason = "nothing requests it";
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

void Prover::conclude_kernels() {
  report_.proof.cases = report_.cases;
  for (const std::string_view family : info_.families)
    report_.proof.families.emplace_back(family);
  std::vector<KernelTally> kernels = tally_.kernels();
  std::ranges::sort(kernels, {}, &KernelTally::kernel);
  for (const KernelTally& k : kernels) {
    KernelProof proof{k.kernel.family, k.kernel.instance, k.cases, k.split_cases, 0, 0};
    for (const int64_t n : k.cases_of) {
      if (n == 0) continue;
      ++proof.cells;
      proof.least = proof.least == 0 ? n : std::min(proof.least, n);
    }
    report_.proof.kernels.push_back(std::move(proof));
  }
  if (!options_.only_cell && cases_needed_of_kernel(options_.quick) > 0) find_kernels_that_never_ran();
}

void Prover::find_kernels_that_never_ran() {
  const int least = cases_needed_of_kernel(options_.quick);
  for (const KernelName& name : thin_kernels()) {
    CaseFailure failure;
    failure.isa = place();
    failure.what = "the kernel " + name.family + " " + name.instance + " ran in " +
                   std::to_string(right_cases(name)) + " right cases; " + std::to_string(least) +
                   " are needed";
    failure.levels = "no case reaches it, or those that do are wrong";
    if (options_.failed) options_.failed(failure);
    report_.failures.push_back(std::move(failure));
  }
}

}  // namespace fovea::conformance
