#pragma once
// What a cell of a matrix says about a claim: proven by a run of `fovea conformance`, declared, or refused.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/columns.h"
#include "conformance/proof.h"

namespace fovea::docs {

/// From what a reader may rely on most to what nobody knows.
enum class Mark {
  proven,            ///< claimed, and a proof file says that every case was right
  proven_by_others,  ///< likewise, but in some phase by kernels of another family than the row's
  declared,          ///< claimed; on no machine of the proof files, or by the document that the row is from
  refused,           ///< not claimed
  unstated,          ///< the document that the row is from says nothing
  failed,            ///< a proof file says that it is wrong
};
/// "✅", "✅ᵒ", "☑", "❌", "–", "⚠".
std::string_view symbol(Mark mark);

/// Every value of one column for one backend.
struct ColumnMarks {
  struct Value {
    std::string text;
    Mark mark;
    std::string where;  ///< it is proven: "CPU", "H200"; else ""
  };
  std::vector<Value> values;
  /// Of the claimed values the worst mark; refused or unstated where none is claimed.
  Mark overall() const;
};

ColumnMarks column_marks(const BackendInfo& backend, const Column& column,
                         std::span<const conformance::Proof> proofs);

/// The machine of a proof in a word: "CPU", "H200".
std::string place_of(const conformance::Proof& proof);

/// What `proof` says of a row: of one that shares another's proof, that one's; null = nothing.
const conformance::BackendProof* find_row(const conformance::Proof& proof, const BackendInfo& backend);

/// The row that a proof is of; null where it is gone.
const BackendInfo* row_of(const conformance::BackendProof& proof, const BackendRegistry& backends);

/// How many of a proof's cells the tables have otherwise: not at all, claimed where it saw a refusal, or not
/// claimed where it saw cases. They prove nothing any more. `backend` is null where the row is gone.
int64_t count_stale(const conformance::BackendProof& proof, const BackendInfo* backend);

/// That a proof of the CPU, which any machine can make again, speaks of the tables as they are: no row and no
/// cell that the tables don't have, none proven that is not claimed, none refused that is. Else an error that
/// names the cell. Of a GPU's proof such cells are stale.
Status check_proofs(std::span<const conformance::Proof> proofs, const BackendRegistry& backends);

}  // namespace fovea::docs
