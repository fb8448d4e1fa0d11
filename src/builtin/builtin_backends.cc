#include <deque>

#include "attention/other_build.h"
#include "backends/cpu_attn/cpu_attn.h"
#include "backends/cuda/factory.h"
#include "backends/flex_attention/flex_attention.h"
#include "backends/torch_native/torch_native.h"
#include "builtin/cuda_rows.h"
#include "builtin/project_backends.h"
#include "compat/rows/rows.h"
#include "device/gpu.h"

namespace fovea {

const BackendRegistry& project_backends() {
  static const BackendRegistry registry = [] {
    BackendRegistry r;
    r.add(cpu_attn_info(), make_cpu_attn);
    r.add(torch_native_info(), make_torch_native);
    r.add(cpu_mla_info(), make_cpu_mla);
    r.add(torch_native_mla_info(), make_torch_native_mla);
    r.add(cpu_mla_sparse_info(), make_cpu_mla_sparse);
    r.add(torch_native_mla_sparse_info(), make_torch_native_mla_sparse);
    static std::deque<BackendInfo> built;  // a deque keeps addresses stable
    for (const BackendInfo* document : document_rows()) {
      if (std::optional<BackendInfo> row = cuda_row(*document)) {
        built.push_back(std::move(*row));
        r.add(built.back(), cuda_factory(built.back()));
      } else {
        r.add(*document, nullptr);
      }
    }
    r.add(flex_attention_info(), make_flex_attention);
    for (const MlaPrefillRow& row : mla_prefill_rows())
      r.add_mla_prefill(row.info, nullptr);
    return r;
  }();
  return registry;
}

const BackendRegistry& builtin_backends() {
  if (cuda_built()) return project_backends();
  static const BackendRegistry registry = [] {
    static std::deque<BackendInfo> rows;  // a deque keeps addresses stable
    BackendRegistry r;
    for (const BackendRegistry::Entry& entry : project_backends().entries()) {
      const BackendInfo& info = *entry.info;
      if (info.capability.device != DeviceKind::cuda || !info.absent.empty()) {
        r.add(info, entry.create);
        continue;
      }
      rows.push_back(info);
      rows.back().absent = kBuiltWithoutCuda;
      r.add(rows.back(), nullptr);
    }
    for (const BackendRegistry::Entry& entry : project_backends().mla_prefill())
      r.add_mla_prefill(*entry.info, entry.create);
    return r;
  }();
  return registry;
}

}  // namespace fovea
