#pragma once
// One page size for all backends that read the cache.
#include "attention/selection_context.h"
#include "fovea/attention_config.h"

namespace fovea {

struct PageSize {
  int size = 0;  ///< 0 = none suits all
  std::string why;
  std::string warning = {};  ///< set if the user's size was changed (allow_page_override)
};

/// `backends` read pages (at least one), `required` is the model's own size or 0. The user's size is kept
/// (backends that it excludes are not in `backends`), unless allow_page_override permits the nearest size
/// that all support. Without one: the first backend's preferred size that all support, else the smallest
/// common size.
PageSize choose_page_size(const AttentionConfig& config, const std::vector<const BackendInfo*>& backends,
                          int required);

}  // namespace fovea
