#include "compat/pages/marks.h"

#include <algorithm>

#include "fovea/attention_backend.h"

namespace fovea::docs {
namespace {

using conformance::CellProof;
using conformance::CellStatus;
using conformance::Proof;

const CellProof* find_cell(const Proof& proof, const BackendInfo& backend, const std::string& id) {
  const conformance::BackendProof* row = find_row(proof, backend);
  if (row == nullptr) return nullptr;
  const auto at = std::ranges::find(row->cells, id, &CellProof::cell);
  return at == row->cells.end() ? nullptr : &*at;
}

bool is_proven(const CellProof& cell) {
  return cell.status == CellStatus::proven || cell.status == CellStatus::other_kernels;
}

/// One failed device outweighs others that passed. `where` receives the devices on which the cell is proven.
Mark mark_of(const BackendInfo& backend, const Cell& cell, std::span<const Proof> proofs,
             std::string& where) {
  bool own = false;
  for (const Proof& proof : proofs) {
    const CellProof* found = find_cell(proof, backend, cell.id());
    if (found == nullptr) continue;
    if (found->status == CellStatus::failed) return Mark::failed;
    if (!is_proven(*found)) continue;
    own |= found->status == CellStatus::proven;
    where.append(where.empty() ? "" : ", ").append(place_of(proof));
  }
  if (!cell.stated) return Mark::unstated;
  if (!cell.claimed) return Mark::refused;
  return where.empty() ? Mark::declared : own ? Mark::proven : Mark::proven_by_others;
}

Error stale(const Proof& proof, const std::string& what) {
  return invalid("proof/" + proof.device + ".json is older than the tables: " + what +
                 "; regenerate it with fovea conformance --write FILE");
}

/// How the tables differ from `cell`; "" = they agree.
std::string why_stale(const CellProof& cell, const std::vector<Cell>& known) {
  const auto at = std::ranges::find(known, cell.cell, &Cell::id);
  if (at == known.end()) return "no longer exists";
  if (at->claimed && !is_proven(cell) && cell.status != CellStatus::too_few &&
      cell.status != CellStatus::failed)
    return "was refused but is now claimed";
  if (!at->claimed && is_proven(cell)) return "was proven but is no longer claimed";
  return {};
}

}  // namespace

std::string_view symbol(Mark mark) {
  switch (mark) {
    case Mark::proven: return "✅";
    case Mark::proven_by_others: return "✅ᵒ";
    case Mark::declared: return "☑";
    case Mark::refused: return "❌";
    case Mark::unstated: return "–";
    case Mark::failed: return "⚠";
  }
  return "?";
}

Mark ColumnMarks::overall() const {
  const auto any = [&](Mark mark) { return std::ranges::find(values, mark, &Value::mark) != values.end(); };
  for (const Mark mark : {Mark::failed, Mark::declared, Mark::proven, Mark::proven_by_others, Mark::unstated})
    if (any(mark)) return mark;
  return Mark::refused;
}

ColumnMarks column_marks(const BackendInfo& backend, const Column& column, std::span<const Proof> proofs) {
  ColumnMarks marks;
  for (const Cell& cell : cells(backend.capability))
    if (cell.column == column.id) {
      std::string where;
      const Mark mark = mark_of(backend, cell, proofs, where);
      const bool proven = mark == Mark::proven || mark == Mark::proven_by_others;
      marks.values.push_back({cell.value, mark, proven ? where : ""});
    }
  return marks;
}

std::string place_of(const Proof& proof) {
  if (proof.device == "cpu") return "CPU";
  constexpr std::string_view kMaker = "NVIDIA ";
  return proof.device_name.starts_with(kMaker) ? proof.device_name.substr(kMaker.size()) : proof.device_name;
}

const conformance::BackendProof* find_row(const Proof& proof, const BackendInfo& backend) {
  const conformance::BackendProof* row = proof.find(backend.name, backend.version);
  if (row == nullptr || row->same_as.empty()) return row;
  const auto same = std::ranges::find_if(proof.backends, [&](const conformance::BackendProof& other) {
    return other.name + (other.version.empty() ? "" : " (" + other.version + ")") == row->same_as;
  });
  return same == proof.backends.end() ? nullptr : &*same;
}

const BackendInfo* row_of(const conformance::BackendProof& proof, const BackendRegistry& backends) {
  const auto& entries = backends.entries();
  const auto at = std::ranges::find_if(entries, [&](const BackendRegistry::Entry& e) {
    return e.info->name == proof.name && e.info->version == proof.version;
  });
  return at == entries.end() ? nullptr : at->info;
}

int64_t count_stale(const conformance::BackendProof& proof, const BackendInfo* backend) {
  if (backend == nullptr) return static_cast<int64_t>(proof.cells.size());
  const std::vector<Cell> known = cells(backend->capability);
  return std::ranges::count_if(proof.cells,
                               [&](const CellProof& cell) { return !why_stale(cell, known).empty(); });
}

Status check_proofs(std::span<const Proof> proofs, const BackendRegistry& backends) {
  for (const Proof& proof : proofs) {
    if (proof.device != "cpu") continue;
    for (const conformance::BackendProof& row : proof.backends) {
      const BackendInfo* backend = row_of(row, backends);
      if (backend == nullptr)
        return stale(proof, row.name + (row.version.empty() ? "" : " (" + row.version + ")") +
                                " is not a backend of this program");
      const std::vector<Cell> known = cells(backend->capability);
      for (const CellProof& cell : row.cells)
        if (const std::string why = why_stale(cell, known); !why.empty())
          return stale(proof, backend->label() + " " + cell.cell + " " + why);
    }
  }
  return {};
}

}  // namespace fovea::docs
