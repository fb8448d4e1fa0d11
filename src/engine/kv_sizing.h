#pragma once
// How many pages the KV cache gets.
#include <cstdint>
#include <optional>
#include <string>

#include "fovea/result.h"

namespace fovea {

/// Bytes that this process could still take: MemAvailable, or less where a control group (v1 or v2) sets a
/// limit. `root` stands before /proc and /sys (tests). INT64_MAX when nothing is known.
int64_t available_memory(const std::string& root = "");

struct KvSizing {
  int64_t bytes_per_page = 0;
  int page_size = 0;           ///< tokens
  int max_seq_len = 0;         ///< tokens
  int64_t sequence_pages = 0;  ///< that one such sequence needs: longest_sequence_pages()
  int max_running = 0;
  std::optional<int64_t> num_pages;  ///< given by the user
  double memory_share = 0.5;         ///< else: of `available`
  int64_t available = 0;             ///< bytes
};

/// The given number, or what the share of memory holds, but never more than max_running sequences of the
/// longest length can use. An error when one such sequence does not fit; it says the longest that would.
Result<int64_t> choose_num_pages(const KvSizing& sizing);

}  // namespace fovea
