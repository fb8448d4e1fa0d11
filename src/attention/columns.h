#pragma once
// The union of the columns that vLLM's, SGLang's and Mini-SGLang's matrices have, as data: what a backend
// claims in each, and the universe of values that it claims or not.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention.h"

namespace fovea {

/// One column of the matrix.
struct Column {
  std::string_view id;     ///< "kv_dtypes", "window", ...
  std::string_view title;  ///< of the documents: "KV Dtypes", "Sliding Window"
  std::string_view description;
};

/// Of the union matrix, in the order of the documents.
std::span<const Column> columns();

/// What `capability` says in `column`, as the documents print it: "fp16, bf16", "%16", "yes", "no", "-".
std::string cell_text(const Capability& capability, const Column& column);

/// One value of one column for one backend: the unit of proof. A yes-or-no column has the one value "yes".
struct Cell {
  std::string_view column;
  std::string value;     ///< "fp8_e4m3", "16", "encoder_only", "yes"
  bool claimed = false;  ///< to be proven by a run; else by its refusal
  bool stated = true;    ///< false = the row's document says nothing: neither is to be proven
  std::string id() const { return std::string(column) + "=" + value; }
};

/// Every value of every column's universe, claimed or not.
std::vector<Cell> cells(const Capability& capability);

}  // namespace fovea
