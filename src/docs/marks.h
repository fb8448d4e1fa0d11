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
  proven,    ///< claimed, and a proof file says that every case was right
  declared,  ///< claimed; on no machine of the proof files, or by the document that the row is from
  refused,   ///< not claimed
  unstated,  ///< the document that the row is from says nothing
  failed,    ///< a proof file says that it is wrong
};
/// "✅", "☑", "❌", "–", "⚠".
std::string_view symbol(Mark mark);

/// Every value of one column for one backend.
struct ColumnMarks {
  struct Value {
    std::string text;
    Mark mark;
  };
  std::vector<Value> values;
  /// Of the claimed values the worst mark; refused or unstated where none is claimed.
  Mark overall() const;
};

ColumnMarks column_marks(const BackendInfo& backend, const Column& column,
                         std::span<const conformance::Proof> proofs);

/// That the proof files speak of the tables as they are: no row and no cell that the tables don't have, none
/// proven that is not claimed, none refused that is. Else an error that names the file's device and the cell.
Status check_proofs(std::span<const conformance::Proof> proofs, const BackendRegistry& backends);

}  // namespace fovea::docs
