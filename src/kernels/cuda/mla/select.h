#pragma once
// Which kernel serves absorbed MLA. Host code, without CUDA.
#include "fovea/attention_spec.h"
#include "fovea/result_fwd.h"
#include "kernels/cuda/common/kernel_info.h"

namespace fovea::cuda::mla {

/// The two implementations: mma.sync (any GPU from compute capability 8.0 on), and wgmma (9.0).
enum class Hardware : uint8_t { sm80, sm90 };

struct Problem {
  QueryType q = QueryType::bf16;
  KvType kv = KvType::same;
  int head_dim = 0, v_head_dim = 0;
  int kv_heads = 1, group = 1;
  MaskSpec mask;
  bool other_scores = false;    ///< a soft cap, ALiBi, sinks, or scales of each head
  bool negative_scale = false;  ///< the softmax scale is
  int topk = 0;                 ///< sparse: keys that a row lists at most; 0: rows see by the mask
  bool ds_mla = false;          ///< sparse, kv e4m3: the records are those of fp8_ds_mla
  /// The most row tiles of kRowTile rows that the declared steps decode, and the keys of an average sequence
  /// of such a step; 0: any number. The keys of a split follow from them.
  int64_t row_tiles = 0, mean_keys = 0;
};

/// The kernel for a problem; extend_small selects extend. Errors: what the kernels do not have, and what they
/// take.
Result<KernelInfo> select(const Problem& problem, Hardware hardware, KernelKind kind);

}  // namespace fovea::cuda::mla
