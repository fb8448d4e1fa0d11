#pragma once
// Copies a HostCase to the device, makes its schedule on the host, and runs a kernel on it: of sm80 by
// default.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cuda_check.h"
#include "device_case.h"
#include "fovea/result.h"
#include "kernels/cuda/sm80/kernel_info.h"
#include "kernels/cuda/sm80/launch.h"

namespace fovea::cuda {

template <class T>
struct DeviceArray {
  T* data = nullptr;
  size_t count = 0;
  DeviceArray() = default;
  explicit DeviceArray(size_t n) : count(n) {
    CUDA_CHECK(cudaMalloc(&data, std::max<size_t>(n, 1) * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    if (count != 0) copy_to_device(data, host.data(), count * sizeof(T));
  }
  DeviceArray(DeviceArray&& o) noexcept : data(o.data), count(o.count) { o.data = nullptr; }
  DeviceArray& operator=(DeviceArray&& o) noexcept {
    std::swap(data, o.data);
    std::swap(count, o.count);
    return *this;
  }
  ~DeviceArray() { cudaFree(data); }
  std::vector<T> host() const {
    std::vector<T> h(count);
    if (count != 0) CUDA_CHECK(cudaMemcpy(h.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
    return h;
  }
};

/// A sequence as the scheduler sees it.
struct Shape {
  int n_q, n_k, q_first;
  int64_t pages;
};

struct Schedule {
  std::vector<WorkItem> items;
  int parts = 0;
};

inline Schedule schedule_decode(const std::vector<Shape>& seqs, int group, const MaskSpec& mask, int rows,
                                int split) {
  Schedule s;
  for (int b = 0; b < static_cast<int>(seqs.size()); ++b) {
    const Shape& q = seqs[b];
    const int packed = q.n_q * group;
    for (int row = 0; row < packed; row += rows) {
      SequenceMask m;
      m.n_q = q.n_q, m.n_k = q.n_k;
      const KeyRanges r = key_ranges(mask, m, row / group, (std::min(row + rows, packed) - 1) / group + 1);
      int first = static_cast<int>(r.body.first), last = static_cast<int>(r.body.last);
      const int low = first;
      if (!r.sinks.empty()) first = 0;
      if (mask.spans) first = 0, last = q.n_k;
      if (last <= first) first = last = 0;
      first = first / split * split;
      const int splits = std::max(1, (last - first + split - 1) / split);
      for (int i = 0; i < splits; ++i) {
        WorkItem w{};
        w.seq = b;
        w.row_first = row;
        w.key_first = first + i * split;
        w.key_last = std::min(last, w.key_first + split);
        w.pages = q.pages;
        w.q_first = q.q_first;
        w.n_q = q.n_q, w.n_k = q.n_k;
        w.key_low = mask.spans ? 0 : low;
        w.sink_first = r.sinks.empty() ? INT32_MAX : static_cast<int>(r.sinks.first);
        w.split = i;
        w.num_splits = splits;
        w.partial_first = s.parts;
        s.items.push_back(w);
      }
      s.parts += splits > 1 ? splits : 0;
    }
  }
  return s;
}

inline Schedule schedule_extend(const std::vector<Shape>& seqs, int group, const MaskSpec& mask, int rows,
                                int tile, int split) {
  Schedule s;
  for (int b = 0; b < static_cast<int>(seqs.size()); ++b) {
    const Shape& q = seqs[b];
    const int packed = q.n_q * group;
    for (int row = 0; row < packed; row += rows) {
      SequenceMask m;
      m.n_q = q.n_q, m.n_k = q.n_k;
      const KeyRanges r = key_ranges(mask, m, row / group, (std::min(row + rows, packed) - 1) / group + 1);
      WorkItem w{};
      w.seq = b;
      w.row_first = row;
      w.key_low = mask.spans ? 0 : static_cast<int>(r.body.first);
      w.sink_first = r.sinks.empty() ? INT32_MAX : static_cast<int>(r.sinks.first);
      w.key_first = static_cast<int>(r.sinks.empty() && !mask.spans ? r.body.first : 0) / tile * tile;
      w.key_last = mask.spans ? q.n_k : std::max(static_cast<int>(r.body.last), 0);
      w.pages = q.pages;
      w.q_first = q.q_first;
      w.n_q = q.n_q, w.n_k = q.n_k;
      const int first = w.key_first / split * split, last = w.key_last;
      w.num_splits = std::max(1, (last - first + split - 1) / split);
      w.partial_first = s.parts;
      for (w.split = 0; w.split < w.num_splits; ++w.split) {
        if (w.split > 0) w.key_first = first + w.split * split;
        w.key_last = std::min(last, first + (w.split + 1) * split);
        s.items.push_back(w);
      }
      s.parts += w.num_splits > 1 ? w.num_splits : 0;
    }
  }
  return s;
}

/// The schedule of one launch and its workspace.
struct DeviceSchedule {
  DeviceArray<WorkItem> items;
  DeviceArray<int32_t> count;
  DeviceArray<float> partial_out;
  DeviceArray<PartialState> partial_state;
  DeviceArray<uint32_t> arrivals;
  DeviceArray<int32_t> queue;

  DeviceSchedule(const Schedule& s, int kv_heads, int rows, int v_dim)
      : items(s.items),
        count(std::vector<int32_t>{static_cast<int32_t>(s.items.size())}),
        partial_out(static_cast<size_t>(s.parts) * kv_heads * rows * v_dim),
        partial_state(static_cast<size_t>(s.parts) * kv_heads * rows),
        arrivals(static_cast<size_t>(s.parts) * kv_heads),
        queue(std::vector<int32_t>{0}) {
    set_bytes(arrivals.data, 0, arrivals.count * 4);
    set_bytes(partial_out.data, 0xff, partial_out.count * 4);
  }
  void put(AttentionParams& p) const {
    p.items = items.data;
    p.num_items = count.data;
    p.queue = queue.data;
    if (partial_out.count == 0) return;
    p.partial_out = partial_out.data;
    p.partial_state = partial_state.data;
    p.arrivals = arrivals.data;
  }
};

inline int sm_count() {
  static const int count = [] {
    int n = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0));
    return n;
  }();
  return count;
}

/// A kernel of the library, launched by its `family`, or a variant under test with its own launch function.
struct Kernel {
  KernelInfo info;
  void (*variant)(const AttentionParams&, int items, cudaStream_t) = nullptr;
  Status (*family)(const KernelInfo&, const AttentionParams&, int items, CUstream_st*,
                   LaunchRecord*) = sm80::launch;
  int split_keys = 0;  ///< keys of a split in the schedule; 0 = the kernel's

  Schedule schedule(const std::vector<Shape>& seqs, int group, const MaskSpec& mask) const {
    const int split = split_keys > 0 ? split_keys : info.split_keys;
    return info.kind == KernelKind::decode
               ? schedule_decode(seqs, group, mask, info.rows, split)
               : schedule_extend(seqs, group, mask, info.rows, info.tile_keys, split);
  }
  void launch(const AttentionParams& p, int items, cudaStream_t stream) const {
    if (variant != nullptr) {
      variant(p, items, stream);
      return;
    }
    const Status status = family(info, p, items, stream, nullptr);
    if (!status.ok()) {
      std::printf("%s\n", status.error().message.c_str());
      std::exit(1);
    }
  }
};

/// The kernel that the library selects for these parameters.
inline Kernel library(KernelKind kind, Element q, Element kv, int d, int dv, bool general,
                      bool few_sequences = false, int shared_bytes = kAnySharedBytes) {
  sm80::Problem p;
  p.q = q == Element::f16 ? QueryType::f16 : QueryType::bf16;
  p.kv = kv == Element::e4m3   ? KvType::e4m3
         : kv == Element::e5m2 ? KvType::e5m2
         : kv == Element::int8 ? KvType::int8
                               : KvType::same;
  p.head_dim = d, p.v_head_dim = dv, p.general = general, p.few_sequences = few_sequences;
  p.shared_bytes = shared_bytes;
  const Result<KernelInfo> info = sm80::select(p, kind);
  if (!info.ok()) {
    std::printf("%s\n", info.error().message.c_str());
    std::exit(1);
  }
  return {*info};
}

inline KvType kv_type(Element q, Element kv) {
  switch (kv) {
    case Element::e4m3: return KvType::e4m3;
    case Element::e5m2: return KvType::e5m2;
    case Element::int8: return KvType::int8;
    case Element::f16: return q == kv ? KvType::same : KvType::f16;
    case Element::bf16: return q == kv ? KvType::same : KvType::bf16;
    default: return q == kv ? KvType::same : KvType::f32;
  }
}

struct Output {
  std::vector<uint16_t> out;  ///< two words for each fp32 element
  std::vector<float> lse;
  bool guards = true;  ///< whether the memory around the output is untouched
};

inline Output run_case(const HostCase& c, const Kernel& kernel) {
  const Problem& p = c.problem;
  const int bytes = element_bytes(p.kv);
  const int page = p.ragged ? 1 : p.page_size;
  const int words = element_bytes(p.q) / 2;
  const int64_t q_row = static_cast<int64_t>(p.heads()) * p.head_dim;
  std::vector<uint16_t> q_host((c.tokens() * (q_row + p.skew) + p.skew) * words, 0xffff);
  for (int t = 0; t < c.tokens(); ++t)
    std::memcpy(
        q_host.data() + (t * (q_row + p.skew) + p.skew) * words,
        p.q == Element::f32 ? static_cast<const void*>(c.q_float.data() + t * q_row) : c.q.data() + t * q_row,
        q_row * words * 2);
  DeviceArray<uint16_t> q(q_host);
  DeviceArray<uint8_t> pool(c.pool);
  DeviceArray<int32_t> table(c.table);
  DeviceArray<float> k_scales(c.k_scales), v_scales(c.v_scales), sinks(c.sinks), slopes(c.slopes),
      tree(c.tree_bias);
  DeviceArray<Span> spans(c.spans);
  DeviceArray<int32_t> span_offsets(c.span_offsets);
  DeviceArray<uint8_t> packed(c.packed);
  DeviceArray<int64_t> packed_offsets(c.packed_offsets);
  const size_t row = static_cast<size_t>(p.heads()) * p.v_head_dim;
  const size_t guard = 4096;
  const size_t out_row = row + p.skew;
  DeviceArray<uint16_t> out((c.tokens() * out_row + p.skew) * words + 2 * guard);
  DeviceArray<float> lse(static_cast<size_t>(c.tokens()) * p.heads() + 2 * guard);
  set_bytes(out.data, 0xff, out.count * 2);
  set_bytes(lse.data, 0xff, lse.count * 4);

  AttentionParams a;
  a.q = q.data + p.skew * words;
  a.out = out.data + guard + p.skew * words;
  a.lse = lse.data + guard;
  a.q_rows.row_stride = q_row + p.skew;
  a.q_rows.head_stride = p.head_dim;
  a.out_rows.row_stride = static_cast<int64_t>(out_row);
  a.out_rows.head_stride = p.v_head_dim;
  a.group = FastDivisor(p.group);
  a.kv_heads = FastDivisor(p.kv_heads);
  a.head_dim = p.head_dim;
  a.v_head_dim = p.v_head_dim;
  a.scale = p.real_scale() * p.k_scale;
  if (p.sinks) a.sinks = sinks.data;
  a.lse_includes_sink = p.lse_includes_sink;
  KvParams& kv = a.kv;
  kv.type = kv_type(p.q, p.kv);
  kv.k = reinterpret_cast<const char*>(pool.data) + p.skew * bytes;
  kv.v = reinterpret_cast<const char*>(pool.data) + c.v_pool;
  const HostCase::Strides k_at = c.strides(false), v_at = c.strides(!p.latent);
  if (p.latent) kv.v = kv.k;
  kv.k_page_stride = k_at.page * bytes, kv.v_page_stride = v_at.page * bytes;
  kv.k_slot_stride = k_at.slot * bytes, kv.v_slot_stride = v_at.slot * bytes;
  kv.k_head_stride = k_at.head * bytes, kv.v_head_stride = v_at.head * bytes;
  kv.k_chunk_stride = k_at.chunk * bytes, kv.v_dim_stride = v_at.dim * bytes;
  kv.v_chunk_stride = v_at.slots * bytes;
  kv.page_size = FastDivisor(page);
  if (!p.ragged) kv.pages = table.data;
  if (p.ragged) kv.rows = c.num_pages;
  kv.v_scale = p.latent ? p.k_scale : p.v_scale;
  if (p.scales_per_token) {
    kv.k_scales = k_scales.data;
    kv.v_scales = v_scales.data;
    kv.scale_page_stride = static_cast<int64_t>(page) * p.kv_heads;
    kv.scale_slot_stride = p.kv_heads;
    kv.scale_head_stride = 1;
  }
  MaskParams& m = a.mask;
  m.causal = p.mask.causal;
  m.window_left = p.mask.window_left;
  m.window_right = p.mask.window_right;
  m.chunk = p.mask.chunk;
  m.sink_tokens = p.mask.sink_tokens;
  m.softcap = p.softcap;
  if (p.mask.spans)
    m.spans = reinterpret_cast<const int32_t*>(spans.data), m.span_offsets = span_offsets.data;
  if (p.mask.packed) m.packed = packed.data, m.packed_offsets = packed_offsets.data;
  if (p.mask.tree) m.tree_bias = tree.data, m.tree_size = p.tree_size;
  if (p.alibi) m.alibi_slopes = slopes.data;

  std::vector<Shape> shapes;
  for (size_t b = 0; b < p.seqs.size(); ++b)
    shapes.push_back({p.seqs[b].n_q, p.seqs[b].n_k, c.q_first[b],
                      p.ragged ? c.ragged_first[b] : static_cast<int64_t>(b) * c.table_stride});
  const Schedule schedule = kernel.schedule(shapes, p.group, p.mask);
  const DeviceSchedule device(schedule, p.kv_heads, kernel.info.rows, kernel.info.v_head_dim);
  device.put(a);
  kernel.launch(a, static_cast<int>(schedule.items.size()), nullptr);
  CUDA_CHECK(cudaDeviceSynchronize());

  Output o;
  const std::vector<uint16_t> all = out.host();
  const std::vector<float> all_lse = lse.host();
  o.out.resize(c.tokens() * row * words);
  for (int t = 0; t < c.tokens(); ++t) {
    const uint16_t* from = all.data() + guard + (t * out_row + p.skew) * words;
    std::copy(from, from + row * words, o.out.begin() + t * row * words);
    for (int i = 1; i <= p.skew * words; ++i)
      o.guards = o.guards && from[-i] == 0xffff;
  }
  o.lse.assign(all_lse.begin() + guard, all_lse.end() - guard);
  for (size_t i = 0; i < guard; ++i) {
    uint32_t a0, a1;
    std::memcpy(&a0, &all_lse[i], 4);
    std::memcpy(&a1, &all_lse[all_lse.size() - 1 - i], 4);
    o.guards = o.guards && all[i] == 0xffff && all[all.size() - 1 - i] == 0xffff && a0 == ~0u && a1 == ~0u;
  }
  return o;
}

}  // namespace fovea::cuda
