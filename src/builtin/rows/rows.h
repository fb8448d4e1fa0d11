#pragma once
// What the documents of vLLM, SGLang and Mini-SGLang say of their attention backends: the rows of those that
// the project has no CPU kernels for, and what a built one's namesake does there.
#include <span>
#include <string_view>
#include <vector>

#include "fovea/attention.h"

namespace fovea {

/// Every row but the CPU's, in the order of the documents. Those that the project has CUDA kernels for
/// (`absent` is empty) say what these do.
const std::vector<const BackendInfo*>& document_rows();

// Its parts, a file each.
std::span<const BackendInfo> standard_rows();    ///< vLLM's table of multi-head attention
std::span<const BackendInfo> mla_rows();         ///< vLLM's and SGLang's of MLA
std::span<const BackendInfo> sparse_mla_rows();  ///< vLLM's of sparse MLA
std::span<const BackendInfo> linear_rows();      ///< attention without softmax, state instead of pages
std::span<const BackendInfo> rocm_rows();        ///< AMD
std::span<const BackendInfo> other_rows();       ///< what only SGLang and Mini-SGLang have; other vendors

/// One way of MLA prefill, as vLLM tells it.
struct MlaPrefillRow {
  BackendInfo info;
  std::string_view title;            ///< "TRT-LLM Ragged"
  std::string_view enable, disable;  ///< the flags
  std::string_view notes;
};
std::span<const MlaPrefillRow> mla_prefill_rows();

}  // namespace fovea
