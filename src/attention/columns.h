#pragma once
// The union of the columns of vLLM's, SGLang's and Mini-SGLang's matrices, as data: the values that a column
// can have, and which of them a backend claims.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/capability.h"

namespace fovea {

/// One column of the matrix.
struct Column {
  std::string_view id;     ///< "kv_dtypes", "window", ...
  std::string_view title;  ///< in the documentation: "KV Dtypes", "Sliding Window"
  std::string_view description;
};

/// The columns of the union matrix, in the order of the documentation.
std::span<const Column> columns();

/// The text of `capability` in `column`, as in the documentation: "fp16, bf16", "%16", "yes", "no", "-".
std::string cell_text(const Capability& capability, const Column& column);

/// One value of one column for one backend: the unit of proof. A yes-or-no column has the one value "yes".
struct Cell {
  std::string_view column;
  std::string value;     ///< "fp8_e4m3", "16", "encoder_only", "yes"
  bool claimed = false;  ///< true: proven by a run; false: proven by a refusal
  bool stated = true;    ///< false = the row's document does not mention it: nothing to prove
  std::string id() const { return std::string(column) + "=" + value; }
};

/// Every possible value of every column, claimed or not.
std::vector<Cell> cells(const Capability& capability);

}  // namespace fovea
