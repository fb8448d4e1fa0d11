#pragma once
// What an engine takes of a GPU's memory, part by part, before any of it is allocated.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fovea/engine.h"
#include "fovea/result_fwd.h"

namespace fovea {

/// All bytes but those of the KV cache.
struct GpuBill {
  int64_t total = 0;         ///< of the GPU
  int64_t taken = 0;         ///< by other programs and by the CUDA context
  double utilization = 0.9;  ///< share of `total` that may be taken
  int64_t weights = 0, activations = 0, workspace = 0, logits = 0, step_arrays = 0, sampler = 0;
  int64_t drafter = 0;  ///< weights and buffers of a drafter's model
  int64_t graphs = 0;   ///< CUDA graphs and the code of kernels: an estimate, an upper bound
  int64_t lora = 0;     ///< slots for adapters

  /// What --gpu-memory-utilization leaves of the GPU.
  int64_t budget() const { return static_cast<int64_t>(utilization * static_cast<double>(total)) - taken; }
  int64_t without_kv() const {
    return weights + activations + workspace + logits + step_arrays + sampler + drafter + graphs + lora;
  }
  int64_t left() const { return budget() - without_kv(); }
};

/// How the KV cache may be sized.
struct GpuKv {
  int64_t bytes_per_page = 0;
  int page_size = 0;
  int64_t sequence_pages = 0;  ///< needed by the longest sequence
  int max_running = 0, max_batched_tokens = 0, max_seq_len = 0;
  std::optional<int64_t> num_pages;  ///< given by the user
};

/// The pages of the KV cache: num_pages, or as many as fit, at most those of max_running longest sequences.
/// An error names the first part that does not fit and what to lower, by how much.
Result<int64_t> gpu_pages(const GpuBill& bill, const GpuKv& kv);

/// The parts by name, with the KV cache.
std::vector<MemoryPart> memory_parts(const GpuBill& bill, int64_t kv_bytes);

/// "1.23 GiB", "45 MiB" or "678 KiB".
std::string memory_text(int64_t bytes);

}  // namespace fovea
