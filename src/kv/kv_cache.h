#pragma once
// The paged KV cache: one allocation, one range per layer, group by group. In the default layout (hnd), pages
// are [num_pages, Hkv, page_size, D], so that one head's tokens of a page are contiguous; KvLayout lists the
// others. Slot = page * page_size + offset; slot < 0 = padding, not written.
#include <cstdint>
#include <span>
#include <vector>

#include "fovea/attention_step.h"
#include "fovea/result_fwd.h"
#include "kv/kv_group.h"
#include "tensor/buffer.h"

namespace fovea {

class KvCache {
 public:
  /// Allocates memory of `device` without touching any page. `counts` [groups.size()]: pages of each group,
  /// or sequences of a state group. Errors: check_groups(), a count below 1, a size that overflows or cannot
  /// be allocated.
  static Result<KvCache> create(std::vector<KvGroup> groups, const std::vector<int64_t>& counts,
                                Device& device = cpu_device());

  const std::vector<KvGroup>& groups() const { return groups_; }  ///< layout auto resolved
  /// The index in groups() of the model's layer `layer`.
  size_t group_of(int layer) const { return place(layer).group; }
  /// Pages of a group, which must not be a state group.
  int64_t num_pages(size_t group) const;
  const Device& device() const { return *device_; }
  /// The memory of all groups.
  const Buffer& buffer() const { return data_; }

  /// Pointers into the device's memory. Latent: V is the first v_head_dim elements of K's records. Not for
  /// layers that keep a state.
  KvView layer(int layer) const;
  /// The pages of a layer's index keys, with the page ids of layer(): K only, one head. fp8_e4m3 is
  /// page-planar, the codes of a page's tokens and then their scales. The layer is one of
  /// KvGroup::index_layers.
  KvView index_keys(int layer) const;
  /// The states of a layer that keeps a state: u8 [sequences, state_bytes].
  Tensor state(int layer) const;

  /// Writes rows of K [T, Hkv, D] and V [T, Hkv, Dv] (fp32, row strides in elements) into slots[T] of `layer`
  /// in its group's dtype, as specified by KvWriter (kernels/cache/kv_writer.h). Latent: K is the records,
  /// and v null. Only on the CPU; elsewhere the device's operations write through layer()
  /// (Ops::norm_rope_append).
  void append(int layer, std::span<const int64_t> slots, const float* k, int64_t k_row_stride, const float* v,
              int64_t v_row_stride, Stream& stream);

 private:
  /// A layer's group and its index among the group's layers.
  struct Place {
    size_t group = 0, index = 0;
  };
  /// A group's memory, in bytes; v, k_scales and v_scales are offsets within a layer.
  struct Range {
    int64_t count = 0, begin = 0, v = 0, k_scales = 0, v_scales = 0, layer_bytes = 0;
    int64_t index_begin = 0, index_layer_bytes = 0;  // of index keys, after all layers
  };
  const Place& place(int layer) const;

  std::vector<KvGroup> groups_;
  std::vector<Range> ranges_;  // [groups_.size()]
  std::vector<Place> places_;  // by layer
  Device* device_ = nullptr;
  Buffer data_;
};

}  // namespace fovea
