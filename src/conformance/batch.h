#pragma once
// A problem laid out in paged memory, with poison in everything that must not be read.
#include <cstdint>
#include <vector>

#include "base/aligned.h"
#include "conformance/host_region.h"
#include "conformance/machine.h"
#include "conformance/problem.h"

namespace fovea::conformance {

/// The order of pages in the pool.
enum class PageOrder : uint8_t {
  shuffled,
  ascending,    ///< sequence after sequence
  descending,   ///< likewise, from the last page down
  interleaved,  ///< ascending, one page per sequence in round-robin order
};

/// Gaps between the pages, heads and slots of a cache.
enum class KvPlace : uint8_t {
  dense,
  gaps,  ///< after each slot, each head or row of heads, and each page, so that all strides differ
  far,   ///< large gaps after each page, so that the last pages are more than 2^31 elements away
};

/// The memory layout of a problem, and its declared limits.
struct Layout {
  uint64_t shuffle = 1;          ///< seed of the page order
  KvLayout kv = KvLayout::hnd;   ///< layout of the pages
  bool page_lists = false;       ///< kv_indptr and kv_indices instead of the page table
  bool ragged = false;           ///< only kv_indptr, with pages of one token; ignores `order`
  int row_padding = 0;           ///< elements between rows of Q and of O
  bool poison_invisible = true;  ///< NaN in keys that no row sees; garbage ids for pages without others
  bool packed_hides = true;  ///< poison_invisible honours packed masks; a GPU's planner does not read them
  PageOrder order = PageOrder::shuffled;
  bool null_page = false;    ///< page 0 is unowned, as in engines that pad page tables with 0
  bool share_pages = false;  ///< sequences share the whole pages of Problem::shared_prefix
  KvPlace place = KvPlace::dense;
  int kv_gap = 16;                ///< elements of KvPlace::gaps; GPU kernels load 16 bytes at once
  bool past_kv_ready = false;     ///< BatchMeta::past_kv_ready
  AttentionLimits declared = {};  ///< used where larger than the batch's own
};

/// A step and its inputs as passed to a backend; without outputs.
struct Step {
  BatchMeta meta;
  AttentionArgs args;
};

/// `meta` with each non-empty array replaced by place(array).
template <class Place>
BatchMeta with_arrays(BatchMeta meta, const Place& place) {
  const auto move = [&](auto& array) {
    if (!array.empty()) array = place(array);
  };
  move(meta.q_offsets);
  move(meta.kv_lens);
  move(meta.page_table);
  move(meta.kv_indptr);
  move(meta.kv_indices);
  move(meta.spans);
  move(meta.span_offsets);
  move(meta.packed_mask);
  move(meta.packed_offsets);
  move(meta.tree_bias);
  return meta;
}

/// A problem's lengths and masks in the form of a step; without pages.
class MaskArrays {
 public:
  explicit MaskArrays(const Problem& problem);
  MaskArrays(const MaskArrays&) = delete;
  MaskArrays& operator=(const MaskArrays&) = delete;
  /// Valid as long as this object.
  const BatchMeta& meta() const { return meta_; }

 private:
  BatchMeta meta_;
  std::vector<int32_t> q_offsets_, kv_lens_, span_offsets_;
  std::vector<Span> spans_;
  std::vector<uint8_t> packed_;
  std::vector<int64_t> packed_offsets_;
  std::vector<float> tree_bias_;
};

/// A problem laid out in memory: NaN in every slot that must not be read, garbage page ids past the end.
class Batch {
 public:
  Batch(const Problem& problem, const Layout& layout);
  const BatchMeta& meta() const { return meta_; }
  /// The limits of the step, or the declared ones where these are larger.
  AttentionLimits limits() const { return limits_; }
  int64_t num_pages() const { return num_pages_; }
  /// Copies the batch to the device of `session`; returns it with device addresses.
  Result<Step> upload(DeviceSession& session) const;
  Result<AttentionArgs> upload_args(DeviceSession& session) const;
  Result<const std::byte*> upload_queries(DeviceSession& session) const;

 private:
  void lay_out_queries(const Problem& problem, const Layout& layout);
  void lay_out_cache(const Problem& problem, const Layout& layout);
  void list_keys(const Problem& problem);
  void place_pages(const Problem& problem, const Layout& layout);
  void place_rows(const Problem& problem, const Layout& layout);
  void make_page_lists(const Problem& problem);
  void store(const Sequence& s, int64_t j, int64_t page, const AttentionSpec& spec);
  void allocate_cache(const Layout& layout);

  MaskArrays masks_;
  BatchMeta meta_;
  AttentionArgs args_;
  std::vector<std::vector<int32_t>> pages_;  // per sequence
  int64_t num_pages_ = 0;
  std::vector<int32_t> page_table_, kv_indptr_, kv_indices_;
  std::vector<int32_t> chosen_;  // [Tq, AttentionArgs::chosen_row_stride]
  bool latent_ = false;          // MLA: v_ and v_scales_ are empty
  std::vector<float> sinks_, slopes_, k_scales_, v_scales_;
  AlignedArray<std::byte> q_;
  HostRegion k_, v_;
  std::vector<ByteRange> k_used_, v_used_;  // KvPlace::far only: the rest is not committed
  AttentionLimits limits_;
};

/// The exact limits of a step of these sequences.
AttentionLimits limits_of(const Problem& problem);
/// The maximum of each limit.
AttentionLimits larger_of(const AttentionLimits& a, const AttentionLimits& b);

/// A random layout that `spec` allows.
Layout random_layout(uint64_t seed, const AttentionSpec& spec);

}  // namespace fovea::conformance
