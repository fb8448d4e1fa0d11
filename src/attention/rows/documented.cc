// What the namesakes of built backends do where they come from, and the list of all rows.
#include "attention/rows/row.h"
#include "attention/rows/rows.h"

namespace fovea {

using namespace rows;

const Capability& cpu_attn_document() {
  static const Capability row = vllm({.dtypes = kFloats,
                                      .kv_dtypes = kKvAuto,
                                      .page_sizes = IntSet::any(),
                                      .head_dims = {32, 64, 80, 96, 112, 128, 160, 192, 224, 256},
                                      .types = kAllTypes,
                                      .features = {Feature::non_causal},
                                      .device = DeviceKind::cpu});
  return row;
}

const Capability& torch_native_document() {
  static const Capability row = sglang({.kv_dtypes = kKvBf16 | kFp8s,
                                        .page_sizes = IntSet::any(),
                                        .preferred_page_size = 1,
                                        .head_dims = IntSet::any(),
                                        .device = DeviceKind::cpu});
  return row;
}

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
