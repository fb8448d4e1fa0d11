#pragma once
// Which kernel of which family serves a phase of a layer, for its schedule and launch. Host code, without
// CUDA.
#include <algorithm>
#include <optional>
#include <string>

#include "fovea/attention_step.h"
#include "fovea/backend_info.h"
#include "kernels/cuda/common/params.h"
#include "kernels/cuda/sm80/select.h"

namespace fovea::cuda {

/// Kernels that share an implementation and a select() (src/kernels/cuda).
enum class Family : uint8_t {
  sm80,             ///< tensor cores, 16-bit queries
  simt,             ///< CUDA cores, decode of 16-bit queries with few heads
  portable,         ///< any dtype, head size, mask and layout
  sm90,             ///< Hopper instructions (wgmma, TMA), 16-bit queries
  mla_sm80,         ///< absorbed MLA on tensor cores, 16-bit queries
  mla_sm90,         ///< the same with Hopper instructions
  mla_sparse_sm80,  ///< mla_sm80 over the keys that rows list
  mla_sparse_sm90,  ///< the same with Hopper instructions
};
std::string_view to_string(Family family);

/// Which family serves a phase of a layer.
using FamilyOf = Family (*)(const AttentionSpec& spec, Phase phase);

Family always_sm80(const AttentionSpec& spec, Phase phase);
Family always_portable(const AttentionSpec& spec, Phase phase);
/// As FlashInfer: CUDA cores decode where a KV head has fewer than 4 query heads. Tensor cores serve
/// prefills, spans, packed masks and trees.
Family sm80_or_simt(const AttentionSpec& spec, Phase phase);
/// The same for any number of query heads.
Family simt_where_it_can(const AttentionSpec& spec, Phase phase);
/// sm90 where it has a kernel for the phase (sm90::select), else sm80.
Family sm90_or_sm80(const AttentionSpec& spec, Phase phase);

Family always_mla_sm80(const AttentionSpec& spec, Phase phase);
Family always_mla_sparse_sm80(const AttentionSpec& spec, Phase phase);
/// mla_sparse_sm90 where it has a kernel (mla::select), else mla_sparse_sm80.
Family mla_sparse_sm90_or_sm80(const AttentionSpec& spec, Phase phase);
/// mla_sm90 where it has a kernel (mla::select), else mla_sm80.
Family mla_sm90_or_sm80(const AttentionSpec& spec, Phase phase);

/// The family function of a row of the registry. `tensor_cores` applies to FLASHINFER's decode
/// (AttentionConfig::flashinfer_use_tensor_cores).
FamilyOf family_of(const BackendInfo& info, std::optional<bool> tensor_cores = {});

/// Which family serves a phase, and why it is or isn't the row's first choice.
struct FamilyReason {
  Family family;
  std::string why;  ///< one line; empty: the row has only one family, or AttentionConfig selects it
};
FamilyReason explain_family(const BackendInfo& info, const AttentionSpec& spec, Phase phase);

/// Kernels for few query rows against many keys; for many rows; and for many rows in small tiles, with the
/// same bits, for steps with too few large tiles to fill the device.
enum class KernelUse : uint8_t { decode, extend, extend_small };

/// A compiled kernel. KernelInfo has what a schedule needs, in the same form for all families.
struct KernelChoice {
  Family family = Family::sm80;
  KernelInfo kernel;
  /// Sequences with more query rows are never split. A small number, lowered where the limits would let the
  /// partial results of a step exceed kMostPartialBytes; at least 1, or 0 without split_prefill.
  int max_split_tokens = 1;
  /// Sequences of at most this number of rows are split all the same where a step has room for their partial
  /// results: PlanPolicy::draft_tokens. Their bits are the same either way.
  int draft_tokens = 0;

  /// Sequences of at most this number of rows have the bits of steps of one row in decode.
  int alike_rows() const { return std::max(max_split_tokens, draft_tokens); }
};

/// Decode uses the kernel for few sequences if, within the limits, splits of kFewSplitKeys keys give at most
/// kFewSplits blocks, about the multiprocessors of the largest device. This depends on the declared limits,
/// not on the device, as another kernel sums in another order.
inline constexpr int64_t kFewSplits = 128, kFewSplitKeys = 1024;

inline constexpr int64_t kMostPartialBytes = int64_t{128} << 20;

/// The cache's element type for a kernel whose queries have spec.dtype; e4m3 also for fp8_ds_mla, whose codes
/// are. Error: a type that no kernel reads.
Result<KvType> kv_type(const AttentionSpec& spec);

/// Whether the cache has KvForm::x_packed.
constexpr bool is_x_packed(const AttentionSpec& spec) {
  return spec.kv_x_packed || spec.kv_shuffle;
}

/// Whether anything other than the causal limit and the sequence's end decides what a row sees or changes a
/// score, or the largest product is not the largest score (scale < 0).
bool needs_general_kernel(const AttentionSpec& spec);

/// KernelChoice::family is `of_row`, except that decode of Family::sm90 within limits of few sequences uses
/// sm80 if that has a kernel for them. Small tiles are chosen if large ones do not fit in `shared_bytes` per
/// block; kernel_on_device() checks that the chosen kernel fits. Errors: those of the family's select().
Result<KernelChoice> choose_kernel(Family of_row, const AttentionSpec& spec, KernelUse use,
                                   const AttentionLimits& limits, int shared_bytes);

/// The tile size of a prefill, where `large` is the choice for KernelUse::extend: small tiles if large ones
/// would leave multiprocessors idle.
KernelUse extend_use(const AttentionSpec& spec, const BatchMeta& meta, const KernelChoice& large,
                     int multiprocessors);

}  // namespace fovea::cuda
