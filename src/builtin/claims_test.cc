// The claims of the rows and the kernels' select() are separate tables: every claim must have a kernel.
#include <gtest/gtest.h>

#include "attention/batch_check.h"
#include "backends/cuda/kernel_choice.h"
#include "builtin/project_backends.h"

namespace fovea::cuda {
namespace {

struct Row {
  const BackendInfo* info;
  FamilyOf families;
};

/// The rows with CUDA kernels; FLASHINFER also with CUDA cores requested.
std::vector<Row> rows() {
  std::vector<Row> out;
  for (const auto& entry : project_backends().entries()) {
    const BackendInfo& info = *entry.info;
    if (info.capability.device != DeviceKind::cuda || !info.absent.empty()) continue;
    out.push_back({&info, family_of(info)});
    if (info.name == "FLASHINFER") out.push_back({&info, family_of(info, false)});
  }
  return out;
}

/// The number of specs of one head size that the row claims; each of them must have a kernel for every use.
int claimed(const Row& row, int head_dim, int group) {
  int count = 0;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (int kv = 0; kv < static_cast<int>(KvCacheDType::count_); ++kv) {
      AttentionSpec spec;
      spec.use_mla = row.info->capability.features.has(Feature::mla);
      spec.use_sparse = row.info->capability.features.has(Feature::sparse);
      spec.sparse_topk = spec.use_sparse ? 2048 : 0;
      spec.num_kv_heads = spec.use_mla ? 1 : 4;
      spec.num_heads = spec.num_kv_heads * group;
      spec.head_dim = head_dim;
      spec.v_head_dim = spec.use_mla ? head_dim / 9 * 8 : head_dim;
      spec.scale = 0.1f;
      spec.dtype = dtype;
      spec.kv_dtype = static_cast<KvCacheDType>(kv);
      if (!check_supported(*row.info, spec).ok()) continue;
      ++count;
      for (const KernelUse use : {KernelUse::decode, KernelUse::extend, KernelUse::extend_small}) {
        const Phase phase = use == KernelUse::decode ? Phase::decode : Phase::prefill;
        const auto kernel =
            choose_kernel(row.families(spec, phase), spec, use, {64, 64, 65536, 4096}, kAnySharedBytes);
        EXPECT_TRUE(kernel.ok()) << row.info->label() << ", " << to_string(dtype) << ", "
                                 << to_string(spec.kv_dtype) << ", head size " << head_dim << ": "
                                 << kernel.error().message;
      }
    }
  return count;
}

#ifdef FOVEA_SANITIZED
constexpr int kStep = 7;  // sizes of every remainder modulo 8
#else
constexpr int kStep = 1;
#endif

TEST(CudaClaims, EveryTypeAndHeadSizeOfARowHasAKernel) {
  EXPECT_GE(rows().size(), 6u);
  for (const Row& row : rows()) {
    const bool mla = row.info->capability.features.has(Feature::mla);
    for (const int group : {1, 8})
      for (int d = mla ? 9 : 1; d <= 584; d += kStep)
        claimed(row, d, group);
    EXPECT_GT(claimed(row, mla ? 576 : 64, 1), 0) << row.info->label();
  }
}

}  // namespace
}  // namespace fovea::cuda
