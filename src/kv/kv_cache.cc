#include "kv/kv_cache.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "attention/kv_view.h"
#include "base/check.h"
#include "device/stream.h"
#include "fovea/result.h"
#include "kernels/cache/ds_mla.h"
#include "kernels/cache/kv_writer.h"
#include "kv/byte_count.h"

namespace fovea {
namespace {

// A layer's K, V and scales, or states, start on a cache line.
constexpr int64_t kBlockAlignment = Device::kAlignment;

/// Offsets within one layer, which begins with K or the states: starts of V, K scales and V scales; end.
struct LayerBlocks {
  ByteCount v, k_scales, v_scales, end;
};

LayerBlocks layer_blocks(const KvGroup& g, int64_t count) {
  const ByteCount zero(0);
  if (!g.paged()) return {zero, zero, zero, (ByteCount(g.state_bytes) * count).aligned(kBlockAlignment)};
  const ByteCount rows = ByteCount(g.page_size) * g.num_kv_heads * count;
  const auto item = static_cast<int64_t>(size_of(g.dtype));
  const ByteCount scales =
      (rows * (has_token_scales(g.dtype) ? static_cast<int64_t>(sizeof(float)) : 0)).aligned(kBlockAlignment);
  const bool latent = g.kind == KvKind::latent;
  const int64_t row = latent ? record_bytes(g.dtype, g.head_dim, g.v_head_dim) : g.head_dim * item;
  const ByteCount k = (rows * row).aligned(kBlockAlignment);
  if (latent) return {zero, k, k, k + scales};
  const ByteCount k_scales = k + (rows * g.v_head_dim * item).aligned(kBlockAlignment);
  return {k, k_scales, k_scales + scales, k_scales + scales + scales};
}

/// "12 pages of 16 tokens, 4 states", for messages.
std::string describe(const std::vector<KvGroup>& groups, const std::vector<int64_t>& counts) {
  std::string text = "KV cache of ";
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(counts[i]) +
            (groups[i].paged() ? " pages of " + std::to_string(groups[i].page_size) + " tokens" : " states");
  }
  return text;
}

Status check_counts(const std::vector<KvGroup>& groups, const std::vector<int64_t>& counts) {
  if (counts.size() != groups.size())
    return invalid("KV cache: " + std::to_string(counts.size()) + " numbers of pages for " +
                   std::to_string(groups.size()) + " groups; each takes one");
  for (size_t i = 0; i < counts.size(); ++i)
    if (counts[i] < 1)
      return invalid("KV group " + std::to_string(i) + " (" + std::string(to_string(groups[i].kind)) +
                     "): " + std::to_string(counts[i]) + (groups[i].paged() ? " pages" : " sequences") +
                     "; it must have at least 1");
  return {};
}

}  // namespace

Result<KvCache> KvCache::create(std::vector<KvGroup> groups, const std::vector<int64_t>& counts,
                                Device& device) {
  FOVEA_RETURN_IF_ERROR(check_groups(groups));
  FOVEA_RETURN_IF_ERROR(check_counts(groups, counts));
  const std::string what = describe(groups, counts);
  KvCache cache;
  cache.device_ = &device;
  ByteCount total(0);
  for (size_t i = 0; i < groups.size(); ++i) {
    KvGroup& group = groups[i];
    if (group.layout == KvLayout::auto_) group.layout = KvLayout::hnd;
    const LayerBlocks blocks = layer_blocks(group, counts[i]);
    const ByteCount index =
        (ByteCount(group.index_bytes_per_token()) * group.page_size * counts[i]).aligned(kBlockAlignment);
    const ByteCount index_begin = total + blocks.end * static_cast<int64_t>(group.layers.size());
    cache.ranges_.push_back({counts[i], total.value(), blocks.v.value(), blocks.k_scales.value(),
                             blocks.v_scales.value(), blocks.end.value(), index_begin.value(),
                             index.value()});
    total = index_begin + index * static_cast<int64_t>(group.index_layers.size());
    for (size_t l = 0; l < group.layers.size(); ++l) {
      const auto layer = static_cast<size_t>(group.layers[l]);
      if (cache.places_.size() <= layer) cache.places_.resize(layer + 1);
      cache.places_[layer] = {i, l};
    }
  }
  if (total.overflow() || total.value() > std::numeric_limits<int64_t>::max() - kBlockAlignment)
    return Error{ErrorCode::out_of_memory, what + " exceeds 64-bit sizes; use fewer pages"};
  cache.groups_ = std::move(groups);
  try {
    cache.data_ = Buffer(device, static_cast<size_t>(total.value()));
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory, what + " needs " + std::to_string(total.value() >> 20) +
                                               " MiB, which the system refused; use fewer pages"};
  }
  return cache;
}

const KvCache::Place& KvCache::place(int layer) const {
  FOVEA_CHECK(layer >= 0 && static_cast<size_t>(layer) < places_.size());
  return places_[static_cast<size_t>(layer)];
}

int64_t KvCache::num_pages(size_t group) const {
  FOVEA_CHECK(group < groups_.size() && groups_[group].paged());
  return ranges_[group].count;
}

KvView KvCache::layer(int layer) const {
  const Place& at = place(layer);
  const KvGroup& group = groups_[at.group];
  const Range& range = ranges_[at.group];
  FOVEA_CHECK(group.paged());
  const std::byte* base = data_.data() + range.begin + static_cast<int64_t>(at.index) * range.layer_bytes;
  const bool latent = group.kind == KvKind::latent;
  KvView view = latent ? latent_view(group.dtype, group.page_size, group.head_dim, group.v_head_dim)
                       : paged_view(group.layout, group.dtype, group.num_kv_heads, group.page_size,
                                    group.head_dim, group.v_head_dim);
  view.num_pages = range.count;
  view.k = base;
  view.v = base + range.v;
  const auto of_layer = [&at](const std::vector<float>& scales) {
    return scales.empty() ? 1.0f : scales[at.index];
  };
  view.k_scale = of_layer(group.k_scales);
  view.v_scale = of_layer(group.v_scales);
  if (has_token_scales(group.dtype)) {
    view.k_scales = reinterpret_cast<const float*>(base + range.k_scales);
    view.v_scales = reinterpret_cast<const float*>(base + range.v_scales);
  }
  if (latent) view.v_scale = view.k_scale;
  return view;
}

KvView KvCache::index_keys(int layer) const {
  const size_t at = group_of(layer);
  const KvGroup& group = groups_[at];
  const Range& range = ranges_[at];
  const auto found = std::ranges::find(group.index_layers, layer);
  FOVEA_CHECK(found != group.index_layers.end());
  const std::byte* base =
      data_.data() + range.index_begin + (found - group.index_layers.begin()) * range.index_layer_bytes;
  KvView view;
  view.k = base;
  view.dtype = group.index_dtype;
  view.page_size = group.page_size;
  view.num_pages = range.count;
  view.k_slot_stride = group.index_dim;
  view.k_page_stride = view.k_head_stride = int64_t{group.page_size} * group.index_dim;
  if (!is_fp8(group.index_dtype)) return view;
  view.k_page_stride += group.page_size * static_cast<int64_t>(sizeof(float));
  view.k_scales = reinterpret_cast<const float*>(base + view.k_head_stride);
  view.scale_page_stride = view.k_page_stride / static_cast<int64_t>(sizeof(float));
  view.scale_slot_stride = 1;
  return view;
}

Tensor KvCache::state(int layer) const {
  const Place& at = place(layer);
  const Range& range = ranges_[at.group];
  FOVEA_CHECK(!groups_[at.group].paged());
  return data_.tensor(ElementType::u8, {range.count, groups_[at.group].state_bytes},
                      static_cast<size_t>(range.begin + static_cast<int64_t>(at.index) * range.layer_bytes));
}

void KvCache::append(int layer, std::span<const int64_t> slots, const float* k, int64_t k_row_stride,
                     const float* v, int64_t v_row_stride, Stream& stream) {
  FOVEA_CHECK(device_ == &cpu_device());
  const KvGroup& group = groups_[group_of(layer)];
  KvView view = this->layer(layer);
  int v_head_dim = group.v_head_dim;
  if (group.kind == KvKind::latent) {  // V is part of K's record: there are no rows or scales of V to write
    FOVEA_CHECK(v == nullptr);
    if (group.dtype == KvCacheDType::fp8_ds_mla)
      return write_ds_mla(view, group.v_head_dim, group.head_dim - group.v_head_dim, slots, k, k_row_stride,
                          stream.pool());
    v_head_dim = 0;
    v_row_stride = 0;
    view.v_scales = nullptr;
  }
  write_kv(view, group.num_kv_heads, group.head_dim, v_head_dim, slots, k, k_row_stride, v, v_row_stride,
           stream.pool());
}

}  // namespace fovea
