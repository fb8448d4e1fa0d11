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
    for (const MlaPrefillRow& row : mla_prefill_rows()) {
      bool served = false;
      for (const BackendRegistry::Entry& entry : r.entries())
        if (std::optional<BackendInfo> prefill = cuda_mla_prefill_row(row.info, *entry.info)) {
          built.push_back(std::move(*prefill));
          r.add_mla_prefill(built.back(), entry.create);
          served = true;
        }
      if (!served) r.add_mla_prefill(row.info, nullptr);
    }
    r.add_mla_prefill(cpu_mla_prefill_info(), make_cpu_attn);
    return r;
  }();
  return registry;
}

const BackendRegistry& builtin_backends() {
  if (cuda_built()) return project_backends();
  static const BackendRegistry registry = [] {
    static std::deque<BackendInfo> rows;  // a deque keeps addresses stable
    BackendRegistry r;
    const auto needs_cuda = [](const BackendInfo& info) {
      return info.capability.device == DeviceKind::cuda && info.absent.empty();
    };
    const auto without_kernels = [](const BackendInfo& info) -> const BackendInfo& {
      rows.push_back(info);
      rows.back().absent = kBuiltWithoutCuda;
      return rows.back();
    };
    for (const auto& [info, create] : project_backends().entries())
      needs_cuda(*info) ? r.add(without_kernels(*info), nullptr) : r.add(*info, create);
    for (const auto& [info, create] : project_backends().mla_prefill())
      needs_cuda(*info) ? r.add_mla_prefill(without_kernels(*info), nullptr)
                        : r.add_mla_prefill(*info, create);
    return r;
  }();
  return registry;
}

}  // namespace fovea
