#include "conformance/tally.h"

#include <algorithm>
#include <set>

namespace fovea::conformance {
namespace {

constexpr size_t kMaxWitnesses = 6;

}  // namespace

Tally::Tally(size_t num_cells, const std::vector<std::string_view>& families)
    : families_(families.begin(), families.end()), cells_(num_cells) {}

bool Tally::is_own(std::string_view family) const {
  return families_.empty() || std::ranges::find(families_, family) != families_.end();
}

KernelTally& Tally::of(const KernelName& kernel) {
  const auto at = std::ranges::find(kernels_, kernel, &KernelTally::kernel);
  if (at != kernels_.end()) return *at;
  return kernels_.emplace_back(KernelTally{
      kernel, 0, 0, std::vector<int64_t>(cells_.size()), std::vector<ShownBy>(cells_.size()), {}});
}

void Tally::take(const CountedCase& c) {
  std::set<std::string> families;
  for (const KernelName& name : c.launched) {
    families.insert(name.family);
    // split_rows may depend on the limits of the step; it does not distinguish kernels.
    KernelTally& kernel = of({name.family, name.instance, name.split_keys, 0});
    ++kernel.cases;
    kernel.split_cases += meets_splits(c.problem, name);
    for (size_t i = 0; i < cells_.size(); ++i)
      if (c.proves[i] && kernel.cases_of[i]++ == 0) kernel.shown[i] = {c.levels, c.number};
    if (kernel.witnesses.size() < kMaxWitnesses) kernel.witnesses.push_back(c.levels);
  }
  for (size_t i = 0; i < cells_.size(); ++i) {
    if (!c.proves[i]) continue;
    CellTally& cell = cells_[i];
    ++cell.cases;
    cell.worst.o = std::max(cell.worst.o, c.errors.o);
    cell.worst.lse = std::max(cell.worst.lse, c.errors.lse);
    const auto phase = static_cast<size_t>(c.problem.phase);
    for (const std::string& family : families)
      ++cell.by_phase[phase][family];
    const bool own = std::ranges::any_of(families, [&](const std::string& f) { return is_own(f); });
    if (own && cell.witnesses[phase].size() < kMaxWitnesses) cell.witnesses[phase].push_back(c.levels);
  }
}

int64_t Tally::own(size_t i, Phase phase) const {
  int64_t cases = 0;
  for (const auto& [family, count] : cells_[i].by_phase[static_cast<size_t>(phase)])
    if (is_own(family)) cases += count;
  return cases;
}

int64_t Tally::in_phase(size_t i, Phase phase) const {
  int64_t cases = 0;
  for (const auto& [family, count] : cells_[i].by_phase[static_cast<size_t>(phase)])
    cases += count;
  return cases;
}

std::string Tally::others(size_t i, Phase phase) const {
  std::string text;
  for (const auto& [family, count] : cells_[i].by_phase[static_cast<size_t>(phase)])
    if (!is_own(family)) text.append(text.empty() ? "" : ", ").append(family);
  return text;
}

bool meets_splits(const Problem& problem, const KernelName& kernel) {
  if (kernel.split_keys <= 0) return false;
  const MaskSpec& mask = problem.spec.mask;
  return std::ranges::any_of(problem.seqs, [&](const Sequence& s) {
    if (s.n_q == 0 || s.n_q > kernel.split_rows || s.n_k == 0) return false;
    const int last = s.n_k - 1;  // the last row's own key
    int first = 0;
    if (mask.window_left >= 0 && mask.sink_tokens == 0) first = std::max(first, last - mask.window_left);
    if (mask.chunk > 0) first = std::max(first, last - last % mask.chunk);
    return first / kernel.split_keys != last / kernel.split_keys;
  });
}

}  // namespace fovea::conformance
