#pragma once
// The attention backends in the documents of vLLM, SGLang and Mini-SGLang, as these describe them. The
// project has kernels of its own for some of these names: builtin/cuda_rows.h.
#include <span>
#include <string_view>
#include <vector>

#include "fovea/attention.h"

namespace fovea {

/// All rows except the CPU's, in the order of the documents. `absent` is the reason why a program lists the
/// name without kernels; it does not hold for the rows that cuda_row() replaces.
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
