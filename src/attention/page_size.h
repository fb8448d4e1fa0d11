#pragma once
// One page size for all backends that read the cache.
#include "attention/selection_context.h"

namespace fovea {

struct PageSize {
  int size = 0;  ///< 0 = none suits all
  std::string why;
  std::string warning = {};  ///< the user's size was changed, as the user permits
};

/// `backends` read pages (at least one), `required` is the model's own size or 0. A size that the user gave
/// stands (refused backends are not among `backends`), unless allow_page_override permits the nearest that
/// all take. Else the first one's preferred that all take, else the smallest.
PageSize choose_page_size(const AttentionConfig& config, const std::vector<const BackendInfo*>& backends,
                          int required);

}  // namespace fovea
