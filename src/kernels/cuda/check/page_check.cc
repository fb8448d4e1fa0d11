#include "kernels/cuda/check/page_check.h"

#include <string>

#include "fovea/result.h"

namespace fovea::cuda {

Status page_fault_status(const PageFault& fault, const PageCheck& check) {
  const std::string seq = ": sequence " + std::to_string(fault.seq);
  const std::string entry = std::to_string(fault.entry), value = std::to_string(fault.value);
  const std::string where = check.indptr == nullptr ? "page table" : "kv_indices";
  switch (fault.kind) {
    case PageFault::none: return {};
    case PageFault::id:
      return invalid(where + seq + ", entry " + entry + " is " + value +
                     (check.num_pages == 0
                          ? "; the cache has no pages"
                          : "; the cache has pages 0 to " + std::to_string(check.num_pages - 1)));
    case PageFault::missing:
      return invalid(where + seq + " needs " + value + " pages of " + std::to_string(check.page_size) +
                     " keys; there are entries for " + entry);
    case PageFault::indptr:
      return invalid("kv_indptr" + seq + " has entries " + entry + " to " + value + "; kv_indices has " +
                     std::to_string(check.num_indices) + ", and kv_indptr must not decrease");
    case PageFault::rows:
      return invalid("kv_indptr" + seq + " has rows " + entry + " to " + value + "; there are " +
                     std::to_string(check.num_pages));
    default: break;
  }
  return Error{ErrorCode::internal, "a page fault of kind " + std::to_string(fault.kind)};
}

}  // namespace fovea::cuda
