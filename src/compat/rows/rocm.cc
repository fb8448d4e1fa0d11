// AMD: vLLM's rows, and SGLang's Wave.
#include "attention/row.h"
#include "compat/rows/rows.h"

namespace fovea {
namespace {

using namespace rows;
using enum Feature;

Capability rocm(Capability c) {
  if (c.dtypes.empty()) c.dtypes = kHalf;
  if (c.kv_dtypes.empty()) c.kv_dtypes = kKvAuto;
  if (c.head_dims.empty()) c.head_dims = IntSet::any();
  c.types = kDecoder;
  c.device = DeviceKind::rocm;
  return vllm(c);
}

std::vector<BackendInfo> make_rows() {
  std::vector<BackendInfo> out;
  const auto add = [&out](BackendInfo row) {
    row.absent = kNoRocm;
    out.push_back(std::move(row));
  };
  add({.name = "ROCM_ATTN",
       .capability = refuses({kv_connector}, rocm({.dtypes = kFloats,
                                                   .page_sizes = {16, 32, 544},
                                                   .head_dims = {32, 64, 96, 128, 160, 192, 224, 256},
                                                   .features = {non_causal},
                                                   .graph = GraphSupport::always})),
       .mla_sibling = "TRITON_MLA",
       .description = "vLLM's kernels for AMD GPUs, optionally separate for prefill and decode"});
  add({.name = "ROCM_AITER_FA",
       .aliases = {"aiter"},
       .capability = rocm({.page_sizes = {16, 32},
                           .head_dims = {64, 128, 256},
                           .features = {non_causal, native_page, verify, tree_mask},
                           .graph = GraphSupport::uniform_batch}),
       .mla_sibling = "ROCM_AITER_MLA",
       .description = "AITER's FlashAttention"});
  add({.name = "ROCM_AITER_UNIFIED_ATTN",
       .capability = rocm({.page_sizes = IntSet::any()}),
       .mla_sibling = "ROCM_AITER_MLA",
       .description = "AITER's kernel for mixed batches"});
  add({.name = "ROCM_AITER_MLA",
       .capability = rocm({.page_sizes = {1},
                           .preferred_page_size = 1,
                           .features = {mla},
                           .graph = GraphSupport::uniform_single_token_decode}),
       .description = "AITER's MLA"});
  add({.name = "ROCM_AITER_MLA_SPARSE",
       .capability = rocm({.page_sizes = IntSet::any(),
                           .preferred_page_size = 1,
                           .head_dims = {576},
                           .v_head_dims = IntSet::any(),
                           .features = {mla, sparse}}),
       .description = "AITER's sparse MLA"});
  add({.name = "ROCM_AITER_TRITON_MLA",
       .capability = rocm({.page_sizes = IntSet::any(), .features = {mla}}),
       .description = "AITER's MLA prefill with Triton's decode"});
  add({.name = "WAVE",
       .aliases = {"wave"},
       .capability = sglang({.kv_dtypes = kKvAuto,
                             .page_sizes = IntSet::any(),
                             .preferred_page_size = 1,
                             .head_dims = IntSet::any(),
                             .features = {native_page},
                             .device = DeviceKind::rocm}),
       .description = "SGLang's kernels in the Wave language"});
  return out;
}

}  // namespace

std::span<const BackendInfo> rocm_rows() {
  static const std::vector<BackendInfo> rows = make_rows();
  return rows;
}

}  // namespace fovea
