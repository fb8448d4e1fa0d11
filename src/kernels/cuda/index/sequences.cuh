#pragma once
// Which keys a row of a step sees.
#include "kernels/cuda/common/params.h"
#include "kernels/cuda/index/index.h"
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda {

/// The sequences of a step: BatchMeta on the device.
struct IndexSequences {
  const int32_t *q_offsets = nullptr, *kv_lens = nullptr;
  int num_seqs = 0;
  const int32_t* pages = nullptr;
  const int32_t* first_page = nullptr;  ///< [seqs]; null: sequence b's begin at b * stride
  int64_t stride = 0;

  IndexSequences() = default;
  explicit IndexSequences(const BatchMeta& m)
      : q_offsets(m.q_offsets.data()), kv_lens(m.kv_lens.data()), num_seqs(m.num_seqs()) {
    const bool lists = !m.kv_indptr.empty();
    pages = lists ? m.kv_indices.data() : m.page_table.data();
    first_page = lists ? m.kv_indptr.data() : nullptr;
    stride = m.page_table_stride;
  }
#ifdef __CUDACC__
  /// The sequence of a row, or -1.
  __device__ int of(int row) const {
    int low = 0, high = num_seqs;
    if (num_seqs == 0 || row >= q_offsets[num_seqs]) return -1;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (q_offsets[middle] <= row)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
  /// Keys that a row of sequence b sees.
  __device__ int keys(int b, int row, int64_t most) const {
    const int64_t n = kv_lens[b] - (q_offsets[b + 1] - row) + 1;
    return static_cast<int>(n < 0 ? 0 : n < most ? n : most);
  }
  __device__ const int32_t* pages_of(int b) const {
    return pages + (first_page == nullptr ? b * stride : first_page[b]);
  }
#endif
};

}  // namespace fovea::cuda
