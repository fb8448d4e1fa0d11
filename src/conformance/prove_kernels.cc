// Chooses rows for each of the row's own kernels: rows that reach it, and rows that prove each cell on it.
#include <algorithm>

#include "base/edit_distance.h"
#include "conformance/prover.h"

namespace fovea::conformance {
namespace {

/// The knobs that kernels are compiled for.
constexpr std::initializer_list<Knob> kCompiledFor = {Knob::dtype, Knob::kv_dtype, Knob::head_dim,
                                                      Knob::v_head_dim, Knob::phase};

/// The other knobs by which a backend chooses a kernel.
constexpr std::initializer_list<Knob> kChosenBy = {Knob::limits, Knob::page_size, Knob::score,
                                                   Knob::batch,  Knob::kv_heads,  Knob::gqa_ratio};

bool same_kernel(const KernelName& a, const KernelName& b) {
  return a.family == b.family && a.instance == b.instance;
}

}  // namespace

std::vector<Levels> turned(const CaseSpace& space, const Levels& row) {
  const Levels free(row.size(), kUnset);
  std::vector<Levels> from = {row};
  const auto add = [&](std::vector<Levels>& to, const Levels& base, Knob knob) {
    for (Levels& next : space.neighbours(base, free, knob))
      to.push_back(std::move(next));
  };
  Levels following = row;
  following[static_cast<size_t>(Knob::kv_dtype)] = space.plain()[static_cast<size_t>(Knob::kv_dtype)];
  for (const Levels& base : {row, following})
    add(from, base, Knob::dtype);
  std::vector<Levels> out = from;
  for (const Levels& base : from) {
    for (const auto& knobs : {kCompiledFor, kChosenBy})
      for (const Knob knob : knobs)
        if (knob != Knob::dtype) add(out, base, knob);
    for (const Levels& other : space.neighbours(base, free, Knob::head_dim))
      add(out, other, Knob::v_head_dim);
  }
  return out;
}

std::vector<Levels> of_the_same_lengths(const CaseSpace& space, const Levels& row) {
  std::vector<Levels> rows;
  for (const Knob knob : {Knob::values, Knob::page_order, Knob::poison, Knob::padding})
    for (Levels& next : space.neighbours(row, Levels(row.size(), kUnset), knob))
      rows.push_back(std::move(next));
  return rows;
}

/// The kernels reported by the backend (AttentionBackend::kernels) that too few passing cases reached.
std::vector<KernelName> Prover::thin_kernels() const {
  std::vector<KernelName> thin;
  for (const KernelName& name : workers_.front().backend->kernels(options_.device))
    if (right_cases(name) < cases_needed_of_kernel(options_.quick)) thin.push_back(name);
  return thin;
}

int64_t Prover::right_cases(const KernelName& name) const {
  int64_t cases = 0;
  for (const KernelTally& k : tally_.kernels())
    if (same_kernel(k.kernel, name)) cases += k.cases;
  return cases;
}

/// Searches kernels that no row has reached near reached kernels of the same family, which may differ only in
/// dtype or head size: first near those with the most similar names, and with light rows. Kernels with tiles
/// for many query rows need full rows.
void Prover::reach_each_kernel() {
  std::set<Levels> probed;
  for (const size_t siblings : {size_t{4}, tally_.kernels().size()})
    for (const bool light : {true, false})
      for (bool found = true; found && !stopped();) {
        const std::vector<KernelName> thin = thin_kernels();
        std::vector<Levels> rows = rows_beside(thin, siblings, light);
        std::erase_if(rows, [&](const Levels& row) { return !probed.insert(row).second; });
        if (thin.empty() || rows.empty()) break;
        reach(thin, rows);
        found = thin_kernels().size() < thin.size();
      }
}

/// The kernels of its family that cases ran, those with the most similar names first.
std::vector<const KernelTally*> Prover::siblings_of(const KernelName& kernel) const {
  std::vector<std::pair<int, const KernelTally*>> found;
  for (const KernelTally& k : tally_.kernels())
    if (k.kernel.family == kernel.family)
      found.emplace_back(edit_distance(k.kernel.instance, kernel.instance), &k);
  std::ranges::stable_sort(found, {}, [](const auto& f) { return f.first; });
  std::vector<const KernelTally*> out;
  for (const auto& [distance, k] : found)
    out.push_back(k);
  return out;
}

/// Rows that reached `count` siblings of each kernel, and variants of these rows (see turned()).
std::vector<Levels> Prover::rows_beside(const std::vector<KernelName>& kernels, size_t count,
                                        bool light) const {
  constexpr size_t kOfEach = 2;
  std::set<const KernelTally*> asked;
  std::vector<Levels> rows;
  for (const KernelName& kernel : kernels) {
    std::vector<const KernelTally*> siblings = siblings_of(kernel);
    siblings.resize(std::min(siblings.size(), count));
    for (const KernelTally* k : siblings) {
      if (!asked.insert(k).second) continue;
      std::vector<Levels> seen = light ? light_rows(k->witnesses) : k->witnesses;
      seen.resize(std::min(seen.size(), kOfEach));
      for (Levels& row : seen) {
        row[static_cast<size_t>(Knob::place)] = 0;  // far pages are expensive and don't affect the choice
        if (!space_.allowed(row)) continue;
        for (Levels& next : turned(space_, row))
          rows.push_back(std::move(next));
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

/// Evaluates those of `rows` that reach one of `wanted`, as often as each of these lacks cases.
void Prover::reach(const std::vector<KernelName>& wanted, const std::vector<Levels>& rows) {
  constexpr size_t kEnough = 4;  // rows per kernel: a case may fail because of another cell
  const auto reached = kernels_of_each(rows);
  std::vector<Want> wants;
  for (const KernelName& name : wanted) {
    std::vector<Levels> of_it;
    for (size_t i = 0; i < rows.size() && of_it.size() < kEnough; ++i)
      if (std::ranges::any_of(reached[i], [&](const KernelName& k) { return same_kernel(k, name); }))
        of_it.push_back(rows[i]);
    if (of_it.empty()) continue;
    wants.push_back({std::move(of_it), [this, name] {
                       return cases_needed_of_kernel(options_.quick) - static_cast<int>(right_cases(name));
                     }});
  }
  satisfy(wants);
}

void Prover::prove_each_kernel() {
  for (size_t k = 0; k < tally_.kernels().size() && !stopped(); ++k)  // others may be reached meanwhile
    if (tally_.is_own(tally_.kernels()[k].kernel.family)) prove_kernel(k);
  prove_thin_kernels();
}

/// Some cells were proven on a kernel by rows meant for another kernel. For these, repeats that row, and the
/// rows that reached the kernel with the cell's value, with other random values. Their cases may reach
/// further kernels. Where that depends on exact lengths, repeats the same lengths with another memory layout.
void Prover::prove_thin_kernels() {
  constexpr int kRounds = 12;
  std::set<std::pair<size_t, size_t>> asked;
  for (bool more = true; more && !stopped();) {
    std::vector<Want> wants;
    for (size_t k = 0; k < tally_.kernels().size(); ++k)
      for (size_t cell = 0; cell < cells_.size(); ++cell)
        if (lacking_of_kernel(k, cell) > 0 && asked.insert({k, cell}).second)
          wants.push_back(
              {rows_for(k, cell), [this, k, cell] { return lacking_of_kernel(k, cell); }, kRounds});
    more = !wants.empty();
    satisfy(wants);
    std::vector<Row> alike;
    for (const auto& [k, cell] : asked)
      if (lacking_of_kernel(k, cell) > 0)
        for (Levels& levels : of_the_same_lengths(space_, tally_.kernels()[k].shown[cell].levels))
          alike.push_back({tally_.kernels()[k].shown[cell].number, {}, true, std::move(levels)});
    evaluate(alike);
  }
}

/// The number of cases of a cell that an own kernel lacks, if some cases have proven the cell on it.
int Prover::lacking_of_kernel(size_t k, size_t cell) const {
  const KernelTally& kernel = tally_.kernels()[k];
  if (kernel.cases_of[cell] == 0 || !tally_.is_own(kernel.kernel.family) || !blame_[cell].empty()) return 0;
  return cases_needed_of_kernel(options_.quick) - static_cast<int>(kernel.cases_of[cell]);
}

std::vector<Levels> Prover::rows_for(size_t k, size_t cell) const {
  const KernelTally& kernel = tally_.kernels()[k];
  std::vector<Levels> rows = {kernel.shown[cell].levels};
  for (const Levels& witness : kernel.witnesses)
    if (auto row = with_cell(witness, cells_[cell])) rows.push_back(*std::move(row));
  return rows;
}

void Prover::prove_kernel(size_t k) {
  const int times = cases_needed_of_kernel(options_.quick);
  const auto lacking = [this, k, times](size_t cell) {
    if (!cells_[cell].claimed || !blame_[cell].empty()) return 0;
    return times - static_cast<int>(tally_.kernels()[k].cases_of[cell]);
  };
  std::vector<Row> batch;
  for (Levels& row : space_.cover(space_.only(kCompiledFor, tally_.kernels()[k].witnesses.front()), times))
    batch.push_back(compose(std::move(row)));
  evaluate(batch);
  // For cells still lacking cases: rows that reached the kernel, with the cell's value.
  const KernelName kernel = tally_.kernels()[k].kernel;
  const auto wanted = [&](const KernelName& name) { return same_kernel(name, kernel); };
  std::vector<Levels> witnesses = reaching(light_rows(tally_.kernels()[k].witnesses), wanted);
  if (witnesses.empty()) witnesses = tally_.kernels()[k].witnesses;
  std::vector<Levels> rows;
  std::vector<size_t> cells;
  for (size_t cell = 0; cell < cells_.size() && !stopped(); ++cell)
    for (size_t w = 0; w < std::min<size_t>(witnesses.size(), 2) && lacking(cell) > 0; ++w)
      if (const auto levels = with_cell(witnesses[w], cells_[cell])) {
        rows.push_back(*levels);
        cells.push_back(cell);
      }
  const std::vector<Levels> reached = reaching(rows, wanted);
  std::vector<Want> wants;
  for (size_t i = 0; i < rows.size(); ++i)
    if (std::ranges::find(reached, rows[i]) != reached.end() &&
        (i == 0 || cells[i] != cells[i - 1] || wants.empty()))
      // If no case has proven the cell on this kernel so far, perhaps none can.
      wants.push_back({{rows[i]},
                       [lacking, cell = cells[i]] { return lacking(cell); },
                       tally_.kernels()[k].cases_of[cells[i]] > 0 ? 6 : 1});
  satisfy(wants);
}

/// `rows` with the plainest lengths and memory, so that it is cheap to find which kernels they reach.
std::vector<Levels> Prover::light_rows(const std::vector<Levels>& rows) const {
  std::vector<Levels> out;
  const Levels plain = space_.plain();
  for (Levels row : rows) {
    for (const Knob knob : {Knob::batch, Knob::place, Knob::kv_heads, Knob::invariance, Knob::graph})
      row[static_cast<size_t>(knob)] = plain[static_cast<size_t>(knob)];
    if (space_.allowed(row)) out.push_back(row);
  }
  return out;
}

/// `row` with the cell's value, and as few other changes as that requires.
std::optional<Levels> Prover::with_cell(const Levels& row, const Cell& cell) const {
  const auto fixed = space_.fixed_to(cell);
  if (!fixed) return std::nullopt;
  return space_.complete(*fixed, row);
}

}  // namespace fovea::conformance
