#pragma once
// The attention backends that vLLM, SGLang and Mini-SGLang document, as their documents describe them. The
// project has its own kernels for some of these names: builtin/cuda_rows.h.
#include <span>
#include <string_view>
#include <vector>

#include "fovea/backend_info.h"

namespace fovea {

/// All rows except the CPU's, in the order of the documents. `absent` is the reason why a program has no
/// kernels for the name; it does not apply to the rows that cuda_row() replaces.
const std::vector<const BackendInfo*>& document_rows();

// Its parts, one file each.
std::span<const BackendInfo> standard_rows();    ///< vLLM's table of multi-head attention
std::span<const BackendInfo> mla_rows();         ///< vLLM's and SGLang's of MLA
std::span<const BackendInfo> sparse_mla_rows();  ///< vLLM's of sparse MLA
std::span<const BackendInfo> linear_rows();      ///< attention without softmax, state instead of pages
std::span<const BackendInfo> rocm_rows();        ///< AMD
std::span<const BackendInfo> other_rows();       ///< only in SGLang and Mini-SGLang; other vendors

/// One MLA prefill backend, as documented by vLLM.
struct MlaPrefillRow {
  BackendInfo info;
  std::string_view title;            ///< "TRT-LLM Ragged"
  std::string_view enable, disable;  ///< the flags
  std::string_view notes;
};
std::span<const MlaPrefillRow> mla_prefill_rows();

}  // namespace fovea
