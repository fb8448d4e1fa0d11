// The list of all rows.
#include "compat/rows/rows.h"

namespace fovea {

const std::vector<const BackendInfo*>& document_rows() {
  static const std::vector<const BackendInfo*> all = [] {
    std::vector<const BackendInfo*> out;
    for (const auto part :
         {standard_rows(), mla_rows(), sparse_mla_rows(), linear_rows(), rocm_rows(), other_rows()})
      for (const BackendInfo& row : part)
        out.push_back(&row);
    return out;
  }();
  return all;
}

}  // namespace fovea
