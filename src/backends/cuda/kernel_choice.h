#pragma once
// Which kernel of which family serves a phase of a layer, as its schedule and a launch see it. Host code,
// without CUDA.
#include <optional>
#include <string>

#include "fovea/attention_backend.h"
#include "kernels/cuda/common/params.h"
#include "kernels/cuda/sm80/select.h"

namespace fovea::cuda {

/// Kernels that are written alike and have a select() of their own (src/kernels/cuda).
enum class Family : uint8_t {
  sm80,      ///< tensor cores, 16-bit queries
  simt,      ///< CUDA cores, decode of 16-bit queries of few heads
  portable,  ///< any dtype, head size, mask and layout
  sm90,      ///< Hopper's own instructions, 16-bit queries
};
std::string_view to_string(Family family);

/// Which family serves a phase of a layer.
using FamilyOf = Family (*)(const AttentionSpec& spec, Phase phase);

Family always_sm80(const AttentionSpec& spec, Phase phase);
Family always_portable(const AttentionSpec& spec, Phase phase);
/// As FlashInfer: CUDA cores decode where a KV head has fewer than 4 query heads. Spans, packed masks and
/// trees are the tensor cores' (prefills always).
Family sm80_or_simt(const AttentionSpec& spec, Phase phase);
/// The same for any number of query heads.
Family simt_where_it_can(const AttentionSpec& spec, Phase phase);
/// Hopper's where they have a kernel for the phase (sm90::select), else sm80's.
Family sm90_or_sm80(const AttentionSpec& spec, Phase phase);

/// What a row of the registry takes. `tensor_cores` is of FLASHINFER's decode
/// (AttentionConfig::flashinfer_use_tensor_cores).
FamilyOf family_of(const BackendInfo& info, std::optional<bool> tensor_cores = {});

/// Which family serves a phase, and why it is or isn't the row's first.
struct FamilyReason {
  Family family;
  std::string why;  ///< one line; empty: the row has no second, or AttentionConfig says which
};
FamilyReason explain_family(const BackendInfo& info, const AttentionSpec& spec, Phase phase);

/// Kernels for few query rows against many keys; for many rows; and for many rows in small tiles, with the
/// same bits, where a step has too few large ones for the device.
enum class KernelUse : uint8_t { decode, extend, extend_small };

/// A compiled kernel; all families say what a schedule must know in the same words.
struct KernelChoice {
  Family family = Family::sm80;
  KernelInfo kernel;
  /// Sequences with more query rows are never split. A few at most, and fewer where the limits would let the
  /// partial results of a step grow beyond kMostPartialBytes; 1 at least.
  int max_split_tokens = 1;
};

/// Decode within limits that give a KV head's splits of kFewSplitKeys keys no more blocks than the largest
/// device has multiprocessors takes the kernel of few sequences. Of declared limits and no device, as another
/// kernel sums in another order.
inline constexpr int64_t kFewSplits = 128, kFewSplitKeys = 1024;

inline constexpr int64_t kMostPartialBytes = int64_t{128} << 20;

/// What the elements of `spec`'s cache are to a kernel whose queries have spec.dtype. Error: a type that no
/// kernel reads.
Result<KvType> kv_type(const AttentionSpec& spec);

/// Anything but the causal limit and the sequence's end decides what a row sees, or changes a score; or the
/// largest product is not the largest score (scale < 0).
bool needs_general_kernel(const AttentionSpec& spec);

/// KernelChoice::family is `of_row`; decode of Family::sm90 within limits of few sequences is sm80's where
/// that has a kernel for them. A device whose blocks may have `shared_bytes` takes small tiles where it has
/// no room for large ones; kernel_on_device() looks whether it has room for what is chosen. Errors: those of
/// the family's select().
Result<KernelChoice> choose_kernel(Family of_row, const AttentionSpec& spec, KernelUse use,
                                   const AttentionLimits& limits, int shared_bytes);

/// The tiles that a prefill takes where `large` is the choice for KernelUse::extend: small ones where so few
/// query rows would leave multiprocessors without one.
KernelUse extend_use(const AttentionSpec& spec, const BatchMeta& meta, const KernelChoice& large,
                     int multiprocessors);

}  // namespace fovea::cuda
