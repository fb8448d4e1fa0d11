#include "attention/page_size.h"

#include <algorithm>
#include <optional>

#include "fovea/attention_config.h"

namespace fovea {
namespace {

constexpr int kLargest = 1 << 20;

std::string names_of(const std::vector<const BackendInfo*>& backends) {
  std::vector<std::string> names;
  for (const BackendInfo* backend : backends)
    names.push_back(backend->label());
  return join(names, ", ");
}

/// The common size nearest to `wanted`, the smaller one on a tie.
std::optional<int> nearest_common(const std::vector<const BackendInfo*>& backends, int wanted) {
  const IntSet& sizes = backends.front()->capability.page_sizes;
  std::optional<int> below, above;
  const auto all_take = [&](int size) {
    return std::ranges::all_of(backends, [&](auto* b) { return b->capability.page_sizes.has(size); });
  };
  for (auto size = sizes.next(1); size && *size <= kLargest && !above; size = sizes.next(*size + 1))
    if (all_take(*size)) (*size <= wanted ? below : above) = size;
  if (!below || !above) return below ? below : above;
  return wanted - *below <= *above - wanted ? below : above;
}

}  // namespace

PageSize choose_page_size(const AttentionConfig& config, const std::vector<const BackendInfo*>& backends,
                          int required) {
  const auto all_take = [&](int size) {
    return std::ranges::all_of(backends, [&](auto* b) { return b->capability.page_sizes.has(size); });
  };
  PageSize none = {
      0, "No page size suits all of " + names_of(backends) + "; choose others with --attention-backend"};
  if (config.page_size) {
    const int given = *config.page_size;
    const std::string from = setting(config, "page_size");
    if (!config.allow_page_override || all_take(given)) return {given, "given: " + from};
    const auto nearest = nearest_common(backends, given);
    if (!nearest) return none;
    const std::string permission = setting(config, "allow_page_override");
    return {*nearest, "nearest to " + from + " " + std::to_string(given) + ", as " + permission + " permits",
            from + " " + std::to_string(given) + " is changed to " + std::to_string(*nearest) +
                ", the nearest that " + names_of(backends) +
                (backends.size() == 1 ? " takes, as " : " take, as ") + permission + " permits"};
  }
  if (required > 0) return {required, "required by the model"};
  for (const BackendInfo* backend : backends)
    if (const int size = backend->capability.preferred_page_size; all_take(size))
      return {size, "preferred by " + backend->label()};
  if (const auto smallest = nearest_common(backends, 1))
    return {*smallest, "the smallest that " + names_of(backends) + " take"};
  return none;
}

}  // namespace fovea
