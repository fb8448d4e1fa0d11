#pragma once
// Sizes the KV cache.
#include <cstdint>
#include <optional>
#include <string>

#include "fovea/result_fwd.h"

namespace fovea {

/// Bytes that this process can still allocate: MemAvailable, or less where a cgroup (v1 or v2) sets a limit.
/// `root` is prepended to /proc and /sys (for tests). INT64_MAX when nothing is known.
int64_t available_memory(const std::string& root = "");

struct KvSizing {
  int64_t bytes_per_page = 0;
  int page_size = 0;           ///< tokens
  int max_seq_len = 0;         ///< tokens
  int64_t sequence_pages = 0;  ///< needed by one sequence of max_seq_len: longest_sequence_pages()
  int max_running = 0;
  std::optional<int64_t> num_pages;  ///< given by the user
  double memory_share = 0.5;         ///< used without num_pages: share of `available`
  int64_t available = 0;             ///< bytes
};

/// num_pages if given, else the pages that fit into the memory share, capped at what max_running sequences of
/// maximum length can use. An error, which names the longest length that fits, when one such sequence does
/// not fit.
Result<int64_t> choose_num_pages(const KvSizing& sizing);

}  // namespace fovea
