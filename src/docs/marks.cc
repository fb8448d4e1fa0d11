#include "docs/marks.h"

#include <algorithm>

#include "fovea/attention_backend.h"

namespace fovea::docs {
namespace {

using conformance::CellProof;
using conformance::CellStatus;
using conformance::Proof;

const CellProof* find_cell(const Proof& proof, const BackendInfo& backend, const std::string& id) {
  const conformance::BackendProof* row = proof.find(backend.name, backend.version);
  if (row == nullptr) return nullptr;
  const auto at = std::ranges::find(row->cells, id, &CellProof::cell);
  return at == row->cells.end() ? nullptr : &*at;
}

/// One device that failed outweighs others that passed.
Mark mark_of(const BackendInfo& backend, const Cell& cell, std::span<const Proof> proofs) {
  bool proven = false;
  for (const Proof& proof : proofs) {
    const CellProof* found = find_cell(proof, backend, cell.id());
    if (found == nullptr) continue;
    if (found->status == CellStatus::failed) return Mark::failed;
    proven |= found->status == CellStatus::proven;
  }
  if (!cell.stated) return Mark::unstated;
  if (!cell.claimed) return Mark::refused;
  return proven ? Mark::proven : Mark::declared;
}

Error stale(const Proof& proof, const std::string& what) {
  return invalid("proof/" + proof.device + ".json is older than the tables: " + what +
                 "; write it again with fovea conformance --write FILE");
}

Status check_row(const Proof& proof, const conformance::BackendProof& row, const BackendInfo& backend) {
  const std::vector<Cell> known = cells(backend.capability);
  for (const CellProof& cell : row.cells) {
    const std::string where = backend.label() + " " + cell.cell;
    const auto at = std::ranges::find(known, cell.cell, &Cell::id);
    if (at == known.end()) return stale(proof, where + " is no cell any more");
    if (at->claimed && cell.status == CellStatus::refused)
      return stale(proof, where + " was refused and is claimed now");
    if (!at->claimed && cell.status == CellStatus::proven)
      return stale(proof, where + " was proven and is not claimed any more");
  }
  return {};
}

}  // namespace

std::string_view symbol(Mark mark) {
  switch (mark) {
    case Mark::proven: return "✅";
    case Mark::declared: return "☑";
    case Mark::refused: return "❌";
    case Mark::unstated: return "–";
    case Mark::failed: return "⚠";
  }
  return "?";
}

Mark ColumnMarks::overall() const {
  const auto any = [&](Mark mark) { return std::ranges::find(values, mark, &Value::mark) != values.end(); };
  for (const Mark mark : {Mark::failed, Mark::declared, Mark::proven, Mark::unstated})
    if (any(mark)) return mark;
  return Mark::refused;
}

ColumnMarks column_marks(const BackendInfo& backend, const Column& column, std::span<const Proof> proofs) {
  ColumnMarks marks;
  for (const Cell& cell : cells(backend.capability))
    if (cell.column == column.id) marks.values.push_back({cell.value, mark_of(backend, cell, proofs)});
  return marks;
}

Status check_proofs(std::span<const Proof> proofs, const BackendRegistry& backends) {
  for (const Proof& proof : proofs)
    for (const conformance::BackendProof& row : proof.backends) {
      const auto& entries = backends.entries();
      const auto at = std::ranges::find_if(entries, [&](const BackendRegistry::Entry& e) {
        return e.info->name == row.name && e.info->version == row.version;
      });
      if (at == entries.end())
        return stale(proof, row.name + (row.version.empty() ? "" : " (" + row.version + ")") +
                                " is no backend of this program");
      FOVEA_RETURN_IF_ERROR(check_row(proof, row, *at->info));
    }
  return {};
}

}  // namespace fovea::docs
