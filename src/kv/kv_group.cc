#include "kv/kv_group.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "attention/kv_view.h"
#include "base/dtype_names.h"
#include "fovea/result.h"
#include "kernels/cache/ds_mla.h"
#include "kv/byte_count.h"

namespace fovea {
namespace {

std::string str(int64_t v) {
  return std::to_string(v);
}

ByteCount layer_token(const KvGroup& g) {
  if (!g.paged()) return ByteCount(0);
  const auto item = static_cast<int64_t>(size_of(g.dtype));
  const int64_t scale = has_token_scales(g.dtype) ? static_cast<int64_t>(sizeof(float)) : 0;
  const int64_t k = g.head_dim * item + scale;
  if (g.kind == KvKind::latent) return ByteCount(record_bytes(g.dtype, g.head_dim, g.v_head_dim) + scale);
  return ByteCount(k + g.v_head_dim * item + scale) * g.num_kv_heads;
}

int64_t index_token(const KvGroup& g) {
  const auto item = static_cast<int64_t>(size_of(g.index_dtype));
  return g.index_dim * item + (is_fp8(g.index_dtype) ? static_cast<int64_t>(sizeof(float)) : 0);
}

ByteCount token(const KvGroup& g) {
  return layer_token(g) * static_cast<int64_t>(g.layers.size()) +
         ByteCount(index_token(g)) * static_cast<int64_t>(g.index_layers.size());
}

ByteCount page(const KvGroup& g) {
  return token(g) * g.page_size;
}

ByteCount sum(std::span<const KvGroup> groups, ByteCount (*bytes)(const KvGroup&)) {
  ByteCount total(0);
  for (const KvGroup& g : groups)
    total = total + bytes(g);
  return total;
}

Status check_scales(const KvGroup& g, const std::vector<float>& scales, const std::string& name,
                    const char* which) {
  if (scales.empty()) return {};
  if (scales.size() != g.layers.size() || !is_fp8(g.dtype))
    return invalid(name + ": " + str(static_cast<int64_t>(scales.size())) + " " + which + " scales for " +
                   str(static_cast<int64_t>(g.layers.size())) + " layers of " +
                   std::string(to_string(g.dtype)) +
                   "; an fp8 cache takes one for each layer, the others none");
  for (const float scale : scales)
    if (!(scale > 0) || !std::isfinite(scale))
      return invalid(name + ": a " + which + " scale is " + std::to_string(scale) +
                     "; it must be a positive number");
  return {};
}

Status check_latent(const KvGroup& g, const std::string& name) {
  if (g.num_kv_heads != 1)
    return invalid(name + ": " + str(g.num_kv_heads) +
                   " KV heads; all heads share one record per token, so that it must be 1");
  if (g.v_head_dim > g.head_dim)
    return invalid(name + ": V has " + str(g.v_head_dim) + " elements and the record " + str(g.head_dim) +
                   "; V is the record's first elements, so that it has at most as many");
  if (g.dtype == KvCacheDType::fp8_ds_mla && !is_ds_mla(g.v_head_dim, g.head_dim - g.v_head_dim))
    return unsupported(name + ": fp8_ds_mla with a latent of " + str(g.v_head_dim) +
                       " elements; it has a scale for each 128, of which it must be a multiple");
  if (g.layout == KvLayout::x_packed || g.layout == KvLayout::shuffle)
    return unsupported(name + ": layout " + std::string(to_string(g.layout)) +
                       " divides records, which must be contiguous; use hnd or nhd");
  if (!g.v_scales.empty())
    return invalid(name + ": V scales, although V is a part of the record; give K scales only");
  return {};
}

Status check_index(const KvGroup& g, const std::string& name) {
  if (g.index_layers.empty()) return {};
  if (g.kind != KvKind::latent)
    return invalid(name + ": layers with index keys; only a group of kind latent has them");
  const bool floats = g.index_dtype == KvCacheDType::float32 || g.index_dtype == KvCacheDType::float16 ||
                      g.index_dtype == KvCacheDType::bfloat16;
  if (!floats && g.index_dtype != KvCacheDType::fp8_e4m3)
    return unsupported(name + ": index keys of " + std::string(to_string(g.index_dtype)) +
                       "; allowed are float32, float16, bfloat16 and fp8_e4m3");
  if (g.index_dim < 4 || g.index_dim % 4 != 0)  // scales follow the codes of a page
    return invalid(name + ": index keys of " + str(g.index_dim) + " elements; a multiple of 4 is needed");
  for (size_t i = 0; i < g.index_layers.size(); ++i)
    if (!std::ranges::binary_search(g.layers, g.index_layers[i]) ||
        (i > 0 && g.index_layers[i] <= g.index_layers[i - 1]))
      return invalid(name + ": index keys of layer " + str(g.index_layers[i]) +
                     "; they are in layers of the group, ascending");
  return {};
}

Status check_pages(const KvGroup& g, const std::string& name) {
  if (g.num_kv_heads < 1 || g.head_dim < 1 || g.v_head_dim < 1 || g.page_size < 1)
    return invalid(
        name + ": KV heads, head sizes of K and V, and the page size must all be at least 1, not " +
        str(g.num_kv_heads) + ", " + str(g.head_dim) + "/" + str(g.v_head_dim) + ", " + str(g.page_size));
  if ((g.kind == KvKind::window) != (g.window > 0))
    return invalid(name + ": a window of " + str(g.window) +
                   " tokens; it must be at least 1 in a group of kind window, and 0 in others");
  if (g.state_bytes != 0)
    return invalid(name + ": " + str(g.state_bytes) +
                   " bytes of state per sequence; only a group of kind state has them");
  if (size_of(g.dtype) == 0)
    return unsupported(name + ": dtype " + std::string(to_string(g.dtype)) +
                       " can't be stored; allowed are " + stored_kv_cache_dtypes() +
                       (g.dtype == KvCacheDType::auto_ ? " (auto resolved)" : ""));
  if (g.dtype == KvCacheDType::fp8_ds_mla && g.kind != KvKind::latent)
    return unsupported(name + ": fp8_ds_mla, the records of latent attention; use fp8_e4m3");
  if (g.kind == KvKind::latent) FOVEA_RETURN_IF_ERROR(check_latent(g, name));
  FOVEA_RETURN_IF_ERROR(check_index(g, name));
  FOVEA_RETURN_IF_ERROR(check_layout(g.layout, g.dtype, g.page_size, g.head_dim));
  FOVEA_RETURN_IF_ERROR(check_scales(g, g.k_scales, name, "K"));
  return check_scales(g, g.v_scales, name, "V");
}

}  // namespace

std::string_view to_string(KvKind kind) {
  switch (kind) {
    case KvKind::full: return "full";
    case KvKind::window: return "window";
    case KvKind::latent: return "latent";
    case KvKind::cross: return "cross";
    case KvKind::state: return "state";
  }
  return "";
}

int64_t KvGroup::layer_bytes_per_token() const {
  return layer_token(*this).value();
}

int64_t KvGroup::index_bytes_per_token() const {
  return index_token(*this);
}

int64_t KvGroup::bytes_per_token() const {
  return token(*this).value();
}

int64_t KvGroup::bytes_per_page() const {
  return page(*this).value();
}

int64_t KvGroup::bytes_per_sequence() const {
  if (paged()) return 0;
  return (ByteCount(state_bytes) * static_cast<int64_t>(layers.size())).value();
}

int64_t bytes_per_token(std::span<const KvGroup> groups) {
  return sum(groups, token).value();
}

int64_t bytes_per_page(std::span<const KvGroup> groups) {
  return sum(groups, page).value();
}

Status check_groups(std::span<const KvGroup> groups) {
  if (groups.empty()) return invalid("KV cache: no groups; at least one is needed");
  std::map<int, size_t> group_of;
  for (size_t i = 0; i < groups.size(); ++i) {
    const KvGroup& g = groups[i];
    const std::string name =
        "KV group " + str(static_cast<int64_t>(i)) + " (" + std::string(to_string(g.kind)) + ")";
    if (g.layers.empty()) return invalid(name + ": no layers; leave the group out");
    for (size_t l = 0; l < g.layers.size(); ++l) {
      if (g.layers[l] < 0 || (l > 0 && g.layers[l] <= g.layers[l - 1]))
        return invalid(name + ": layer " + str(g.layers[l]) + " at place " + str(static_cast<int64_t>(l)) +
                       "; layers must be at least 0 and ascending");
      const auto [other, added] = group_of.emplace(g.layers[l], i);
      if (!added)
        return invalid(name + ": layer " + str(g.layers[l]) + " is in group " +
                       str(static_cast<int64_t>(other->second)) + " too; a layer has one group");
    }
    if (g.paged())
      FOVEA_RETURN_IF_ERROR(check_pages(g, name));
    else if (g.state_bytes < 1)
      return invalid(name + ": " + str(g.state_bytes) +
                     " bytes of state per sequence and layer; it must be at least 1");
  }
  int expected = 0;
  for (const auto& [layer, group] : group_of)
    if (layer != expected++)
      return invalid("KV cache: layer " + str(expected - 1) + " is in no group, while layer " + str(layer) +
                     " is in group " + str(static_cast<int64_t>(group)) +
                     "; each layer up to the last needs one");
  return {};
}

}  // namespace fovea
