#pragma once
// The mark of a matrix cell: its claim is proven by a run of `fovea conformance`, declared, or refused.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/columns.h"
#include "conformance/proof.h"
#include "fovea/attention_backend.h"

namespace fovea::docs {

/// Ordered from most to least reliable.
enum class Mark {
  proven,            ///< claimed, and a proof file has every case right
  proven_by_others,  ///< likewise, but in some phase by kernels of another family than the row's
  declared,          ///< claimed; in no proof file, or only in the row's document
  refused,           ///< not claimed
  unstated,          ///< the row's documentation does not mention it
  failed,            ///< a proof file has a wrong case
};
/// "✅", "✅ᵒ", "☑", "❌", "–", "⚠".
std::string_view symbol(Mark mark);

/// Every value of one column for one backend.
struct ColumnMarks {
  struct Value {
    std::string text;
    Mark mark;
    std::string where;  ///< where it is proven: "CPU", "H200"; else ""
  };
  std::vector<Value> values;
  /// The worst mark of the claimed values; refused or unstated where none is claimed.
  Mark overall() const;
};

ColumnMarks column_marks(const BackendInfo& backend, const Column& column,
                         std::span<const conformance::Proof> proofs);

/// The machine of a proof in a word: "CPU", "H200".
std::string place_of(const conformance::Proof& proof);

/// The proof of a row, or of the row whose proof it shares; null = none.
const conformance::BackendProof* find_row(const conformance::Proof& proof, const BackendInfo& backend);

/// The row that was proven; null where it is gone.
const BackendInfo* row_of(const conformance::BackendProof& proof, const BackendRegistry& backends);

/// How many of a proof's cells disagree with the tables: absent from them, claimed but refused in the proof,
/// or not claimed but run in it. They no longer prove anything. `backend` is null where the row is gone.
int64_t count_stale(const conformance::BackendProof& proof, const BackendInfo* backend);

/// Checks that a CPU proof, which any machine can repeat, matches the tables: it has no row and no cell that
/// the tables lack, no proven cell that is not claimed and no refused cell that is. The error names the cell.
/// In a GPU's proof such cells are stale.
Status check_proofs(std::span<const conformance::Proof> proofs, const BackendRegistry& backends);

}  // namespace fovea::docs
