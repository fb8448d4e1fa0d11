#pragma once
// Configurations of schedulers in tests.
#include "engine/scheduler.h"

namespace fovea::test {

/// Few sequences and pages; `pages` of `page_size` tokens, and no longer sequence.
inline SchedulerConfig config_of(int max_running, int budget, int page_size, int64_t pages,
                                 bool cache = true) {
  SchedulerConfig config;
  config.max_running = config.max_logit_rows = max_running;
  config.max_batched_tokens = budget;
  config.page_size = page_size;
  config.num_pages = pages;
  config.prefix_cache = cache;
  config.max_seq_len = static_cast<int>(pages) * page_size;
  config.watermark = 1;
  return config;
}

}  // namespace fovea::test
