// Chooses rows for each cell: covering arrays first, then rows for cells that have too few cases.
#include <algorithm>
#include <map>

#include "base/thread_pool.h"
#include "conformance/prover.h"

namespace fovea::conformance {
namespace {

constexpr int kRowBits = 12;        // row bits of a case number; the others are the seed
constexpr uint64_t kArrays = 2;     // arrays of a full run, each with other values
constexpr uint64_t kComposed = 15;  // the array number of composed rows
constexpr size_t kRound = 64;       // rows for lacking cells that are evaluated at a time

}  // namespace

bool Prover::concerns(const Cell& cell) const {
  return !options_.only_cell || options_.only_cell->id() == cell.id();
}

/// Whether a cell needs no more cases: it has enough, is blamed for a failure, or none of its cases passes.
bool Prover::enough(size_t cell) const {
  const int64_t right = tally_.cell(cell).cases;
  return right >= needed() || !blame_[cell].empty() || (right == 0 && wrong_[cell] >= int64_t{4} * needed());
}

std::vector<Row> Prover::rows_of(uint64_t array, const std::optional<Cell>& fixed) const {
  Levels levels;
  if (fixed)
    if (const auto found = space_.fixed_to(*fixed)) levels = *found;
  std::vector<Row> rows;
  for (Levels& row : space_.rows(array, levels))
    if (const uint64_t index = rows.size() + 1; index < (1u << kRowBits))
      rows.push_back({array << kRowBits | index, fixed, false, std::move(row)});
  return rows;
}

/// Makes a row with a new number, and so with new values.
Row Prover::compose(Levels levels) {
  return {(array(kComposed) << kRowBits) + ++composed_, {}, true, std::move(levels)};
}

Status Prover::replay() {
  const uint64_t number = *options_.replay;
  const std::string name(info_.name);
  if (!options_.replay_row.empty()) {
    const auto levels = space_.parse_code(options_.replay_row);
    if (!levels)
      return invalid("--row " + options_.replay_row + " is not a row of " + name +
                     "; give the number and the row that a failure printed");
    evaluate({{number, {}, true, *levels}});
    return {};
  }
  std::vector<Row> rows = rows_of(number >> kRowBits, options_.only_cell);
  std::erase_if(rows, [&](const Row& row) { return row.number != number; });
  if (rows.empty())
    return invalid("case " + std::to_string(number) + " does not exist for " + name +
                   (options_.only_cell ? " with this cell" : "") +
                   "; give the number, and the cell or row, that a failure printed");
  evaluate(rows);
  return {};
}

void Prover::prove_claimed() {
  if (options_.quick) {
    prove_quickly();
  } else {
    for (uint64_t k = 0; k < (options_.only_cell ? 1 : kArrays) && !stopped(); ++k)
      evaluate(rows_of(array(k), options_.only_cell));
  }
  if (!options_.only_cell) prove_lacking();
  prove_own_kernels();
  if (options_.only_cell || cases_needed_of_kernel(options_.quick) == 0) return;
  reach_each_kernel();
  prove_each_kernel();
}

/// Rows with each level of each knob, and those of the other rows that cells need.
void Prover::prove_quickly() {
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

/// A subset of rows, in order, in which each level of each knob occurs twice where possible.
std::vector<Row> Prover::few_of(const std::vector<Row>& rows) const {
  const int times = cases_needed(true);
  std::map<std::pair<size_t, int>, int> seen;
  std::vector<Row> few;
  for (const Row& row : rows) {
    bool wanted = false;
    for (size_t k = 0; k < row.levels.size(); ++k)
      wanted |= seen[{k, row.levels[k]}] < times;
    if (!wanted) continue;
    for (size_t k = 0; k < row.levels.size(); ++k)
      ++seen[{k, row.levels[k]}];
    few.push_back(row);
  }
  return few;
}

/// Evaluates `rows` until the cell has enough cases: not every case with a value depends on it, and some fail
/// because of another cell.
void Prover::prove_more(size_t cell, const std::vector<Row>& rows) {
  for (size_t at = 0; at < rows.size() && !enough(cell) && !stopped();) {
    const auto lacking = static_cast<size_t>(needed() - tally_.cell(cell).cases);
    const size_t end = std::min(rows.size(), at + lacking);
    evaluate(
        {rows.begin() + static_cast<std::ptrdiff_t>(at), rows.begin() + static_cast<std::ptrdiff_t>(end)});
    at = end;
  }
}

/// Makes separate rows for each cell with too few passing cases, and evaluates some for each cell at a time.
void Prover::prove_lacking() {
  struct More {
    std::vector<Row> rows;
    size_t at = 0;
  };
  std::map<size_t, More> more;  // by cell
  while (!stopped()) {
    std::vector<size_t> cells, fresh;
    for (size_t i = 0; i < cells_.size() && cells.size() < kRound; ++i) {
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
      const size_t end = std::min(m.rows.size(), m.at + static_cast<size_t>(needed() - tally_.cell(i).cases));
      batch.insert(batch.end(), m.rows.begin() + static_cast<std::ptrdiff_t>(m.at),
                   m.rows.begin() + static_cast<std::ptrdiff_t>(end));
      m.at = end;
      if (batch.size() >= kRound * 2) break;
    }
    evaluate(batch);
  }
}

// --- The row's own kernels

/// Whether `cell` can have cases in `phase`.
bool Prover::asks(size_t cell, Phase phase) const {
  const auto at = space_.fixed_to(phase), fixed = space_.fixed_to(cells_[cell]);
  if (!at) return false;
  Levels row = *at;
  for (size_t k = 0; fixed && k < row.size(); ++k) {
    if ((*fixed)[k] == kUnset) continue;
    if (row[k] != kUnset && row[k] != (*fixed)[k]) return false;
    row[k] = (*fixed)[k];
  }
  return space_.complete(row, space_.plain()).has_value();
}

/// Those of `rows` that reach a kernel for which `wanted` is true.
std::vector<Levels> Prover::reaching(const std::vector<Levels>& rows,
                                     const std::function<bool(const KernelName&)>& wanted) {
  const auto reached = kernels_of_each(rows);
  std::vector<Levels> out;
  for (size_t i = 0; i < rows.size(); ++i)
    if (std::ranges::any_of(reached[i], wanted)) out.push_back(rows[i]);
  return out;
}

/// Evaluates rows of each want until it lacks nothing, in rounds over all wants. Each round draws other
/// values, as not every case with a value depends on it.
void Prover::satisfy(const std::vector<Want>& wants) {
  for (int round = 0; !stopped(); ++round) {
    std::vector<Row> batch;
    for (const Want& want : wants)
      for (int n = 0; round < want.rounds && n < want.lacking(); ++n)
        batch.push_back(compose(want.rows[static_cast<size_t>(n + round) % want.rows.size()]));
    if (batch.empty()) return;
    evaluate(batch);
  }
}

/// The cases of a cell that count for a phase: those on the row's own kernels, or all if no own kernel serves
/// it.
int64_t Prover::counted(size_t cell, Phase phase) const {
  return not_own_.contains({cell, phase}) ? tally_.in_phase(cell, phase) : tally_.own(cell, phase);
}

/// Evaluates the lacking cases of each cell in each phase, with rows that reach the row's own kernels if any
/// do.
void Prover::prove_own_kernels() {
  std::vector<Want> wants;
  std::vector<std::pair<size_t, Phase>> asked;
  for (size_t i = 0; i < cells_.size() && !stopped(); ++i)
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      if (!cells_[i].claimed || !concerns(cells_[i]) || !blame_[i].empty()) continue;
      const auto lacking = [this, i, phase] {
        if (!blame_[i].empty()) return 0;
        return cases_needed_of_phase(options_.quick) - static_cast<int>(counted(i, phase));
      };
      if (lacking() <= 0 || !space_.fixed_to(cells_[i]) || !asks(i, phase)) continue;
      std::vector<Levels> rows = plain_rows(i, phase);
      // Prefer rows that have already reached them: their cases also depend on the value.
      std::vector<Levels> own = tally_.cell(i).witnesses[static_cast<size_t>(phase)];
      if (own.empty()) own = reaching(rows, [&](const KernelName& k) { return tally_.is_own(k.family); });
      if (own.empty())
        not_own_.insert({i, phase});
      else
        rows = std::move(own);
      constexpr int kRounds = 24;  // not every case depends on the value
      wants.push_back({std::move(rows), lacking, kRounds});
      asked.emplace_back(i, phase);
    }
  satisfy(wants);
  for (const auto& [cell, phase] : asked)
    if (tally_.in_phase(cell, phase) == 0) no_part_.insert({cell, phase});
}

/// The plainest row of a cell in a phase, and rows that differ from it in a knob that kernels are compiled
/// for or chosen by: if the row's own kernels serve the cell, they serve one of these. Some values matter
/// only with several rows per sequence (a decode of one row sees all keys, causal or not), and kernels depend
/// on the limits too, so each pair of the two is included.
std::vector<Levels> Prover::plain_rows(size_t cell, Phase phase) {
  Levels partial = *space_.fixed_to(cells_[cell]);
  const Levels at = *space_.fixed_to(phase);
  for (size_t k = 0; k < partial.size(); ++k)
    if (at[k] != kUnset) partial[k] = at[k];
  const Levels plainest = *space_.complete(partial, space_.plain());  // asks() found it
  std::vector<Levels> rows = {plainest};
  for (const Knob knob : {Knob::limits, Knob::dtype, Knob::kv_dtype, Knob::head_dim, Knob::v_head_dim})
    for (const Levels& row : space_.neighbours(plainest, partial, knob))
      rows.push_back(row);
  std::vector<Levels> limits = space_.neighbours(plainest, partial, Knob::limits);
  limits.push_back(plainest);
  for (const Levels& base : limits)
    for (const Levels& row : space_.neighbours(base, partial, Knob::batch))
      rows.push_back(row);
  return rows;
}

}  // namespace fovea::conformance
