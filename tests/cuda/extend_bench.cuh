#pragma once
// Throughput of prefill kernels, counting the FLOPs of visible pairs only.
#include <unistd.h>

#include "fovea/result.h"
#include "kernels/cuda/common/schedule.h"
#include "sm80_bench.cuh"

namespace fovea::cuda {

struct ExtendShape {
  std::vector<Sequence> seqs;
  int page = 0;  ///< 0 = ragged
  int d = 128, dv = 128, kv_heads = 8, group = 4;
  MaskSpec mask;
  float softcap = 0;
  bool sinks = false;
  Pages layout = Pages::nhd;

  int heads() const { return kv_heads * group; }
  int page_size() const { return page == 0 ? 1 : page; }
  int64_t rows() const {
    int64_t n = 0;
    for (const Sequence& s : seqs)
      n += s.n_q;
    return n;
  }
  /// 2 (D + Dv) for each query head, row and key that the row sees. For masks without sink tokens and spans.
  double flops() const {
    int64_t pairs = 0;
    for (const Sequence& s : seqs) {
      SequenceMask m;
      m.n_q = s.n_q, m.n_k = s.n_k;
      for (int row = 0; row < s.n_q; ++row) {
        const KeyRanges keys = key_ranges(mask, m, row, row + 1);
        pairs += keys.body.last - keys.body.first;
      }
    }
    return 2.0 * (d + dv) * heads() * static_cast<double>(pairs);
  }
};

inline ExtendShape uniform(int batch, int length, int page, int d, bool causal) {
  ExtendShape shape;
  shape.seqs.assign(static_cast<size_t>(batch), {length, length});
  shape.page = page;
  shape.d = shape.dv = d;
  shape.mask.causal = causal;
  return shape;
}

/// The arrays of a step on the device, with pages in random order, and its schedule as a backend makes it.
class ExtendStep {
 public:
  ExtendStep(const Kernel& kernel, const ExtendShape& shape, const Pool& pool) : shape_(shape) {
    const int page = shape.page_size();
    AttentionLimits limits;
    std::vector<int32_t> q_offsets = {0}, kv_lens, first;
    int64_t pages = 0;
    for (const Sequence& s : shape.seqs) {
      q_offsets.push_back(q_offsets.back() + s.n_q);
      kv_lens.push_back(s.n_k);
      first.push_back(static_cast<int32_t>(pages));
      pages += (s.n_k + page - 1) / page;
      limits.max_kv_tokens += s.n_k;
      limits.max_kv_len = std::max(limits.max_kv_len, s.n_k);
    }
    limits.max_seqs = static_cast<int>(shape.seqs.size());
    limits.max_tokens = q_offsets.back();
    std::vector<int32_t> order(pages);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(3));
    table_ = DeviceArray<int32_t>(order);
    q_ = DeviceArray<uint32_t>(static_cast<size_t>(shape.rows()) * shape.heads() * shape.d / 2);
    fill_normal<<<1024, 256>>>(q_.data, q_.count, 5, 0);
    out_ = DeviceArray<uint16_t>(static_cast<size_t>(shape.rows()) * shape.heads() * shape.dv);
    sinks_ = DeviceArray<float>(std::vector<float>(static_cast<size_t>(shape.heads()), 0.5f));
    const PlanPolicy policy =
        plan_policy(kernel.info, shape.kv_heads, shape.group,
                    kernel.split_keys > 0 ? 1 : std::max(1, kernel.info.rows / shape.group), shape.mask);
    const ScheduleLimits most = schedule_limits(policy, limits);
    max_items_ = static_cast<int>(most.max_items);
    items_ = DeviceArray<WorkItem>(static_cast<size_t>(most.max_items));
    count_ = DeviceArray<int32_t>(1);
    const DeviceArray<int32_t> offsets(q_offsets), lens(kv_lens), firsts(first), error(1);
    PlanInput input;
    input.q_offsets = offsets.data, input.kv_lens = lens.data, input.num_seqs = limits.max_seqs;
    const Status status =
        launch_schedule(policy, limits, input, {firsts.data, 0},
                        {items_.data, count_.data, reinterpret_cast<PlanError*>(error.data)}, nullptr);
    if (!status.ok()) std::printf("%s\n", status.error().message.c_str());
    CUDA_CHECK(cudaDeviceSynchronize());
    set_params(kernel, pool, pages);
  }

  const AttentionParams& params() const { return params_; }
  int max_items() const { return max_items_; }

 private:
  void set_params(const Kernel& kernel, const Pool& pool, int64_t pages) {
    AttentionParams& a = params_;
    a.q = q_.data;
    a.out = out_.data;
    a.q_rows.row_stride = static_cast<int64_t>(shape_.heads()) * shape_.d;
    a.q_rows.head_stride = shape_.d;
    a.out_rows.row_stride = static_cast<int64_t>(shape_.heads()) * shape_.dv;
    a.out_rows.head_stride = shape_.dv;
    a.group = FastDivisor(shape_.group);
    a.kv_heads = FastDivisor(shape_.kv_heads);
    a.head_dim = shape_.d;
    a.v_head_dim = shape_.dv;
    a.scale = 1.0f / std::sqrt(static_cast<float>(shape_.d));
    if (shape_.sinks) a.sinks = sinks_.data;
    a.mask.causal = shape_.mask.causal;
    a.mask.window_left = shape_.mask.window_left;
    a.mask.window_right = shape_.mask.window_right;
    a.mask.chunk = shape_.mask.chunk;
    a.mask.softcap = shape_.softcap;
    const int64_t element = kv_bytes(kernel.info.kv), page = shape_.page_size();
    a.kv.type = kernel.info.kv;
    if (a.kv.type == KvType::int8) {
      scales_ =
          DeviceArray<float>(std::vector<float>(static_cast<size_t>(pages * page * shape_.kv_heads), 0.01f));
      a.kv.k_scales = a.kv.v_scales = scales_.data;
      a.kv.scale_head_stride = 1, a.kv.scale_slot_stride = shape_.kv_heads;
      a.kv.scale_page_stride = page * shape_.kv_heads;
    }
    a.kv.k_head_stride = shape_.d * element, a.kv.v_head_stride = shape_.dv * element;
    a.kv.k_slot_stride = shape_.kv_heads * a.kv.k_head_stride;
    a.kv.v_slot_stride = shape_.kv_heads * a.kv.v_head_stride;
    a.kv.k_page_stride = a.kv.k_slot_stride * page, a.kv.v_page_stride = a.kv.v_slot_stride * page;
    a.kv.k = reinterpret_cast<const char*>(pool.memory.data);
    a.kv.v = a.kv.k + pages * a.kv.k_page_stride;
    if (static_cast<size_t>(pages * (a.kv.k_page_stride + a.kv.v_page_stride)) > pool.memory.count * 4) {
      std::printf("the pool is too small\n");
      std::exit(1);
    }
    a.kv.page_size = FastDivisor(static_cast<uint32_t>(page));
    if (shape_.page != 0) a.kv.pages = table_.data;
    put_pages(a.kv, shape_.layout, shape_.d, element);
    if (shape_.page == 0) a.kv.rows = pages;
    a.items = items_.data;
    a.num_items = count_.data;
    a.queue = queue_.data;
  }

  const ExtendShape shape_;
  DeviceArray<uint32_t> q_;
  DeviceArray<uint16_t> out_;
  DeviceArray<float> sinks_, scales_;
  DeviceArray<int32_t> table_, count_, queue_{std::vector<int32_t>{0}};
  DeviceArray<WorkItem> items_;
  AttentionParams params_;
  int max_items_ = 0;
};

/// Microseconds of a call on a cool device: the median over three short runs, each after a pause of 0.12 s.
template <class F>
double rested_time(F&& call) {
  std::vector<double> times;
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  for (int round = 0; round < 3; ++round) {
    CUDA_CHECK(cudaDeviceSynchronize());
    usleep(120000);
    double total = 0;
    for (int i = 0; i < 2 || total < 25e3; ++i) {
      CUDA_CHECK(cudaEventRecord(begin));
      call();
      CUDA_CHECK(cudaEventRecord(end));
      CUDA_CHECK(cudaEventSynchronize(end));
      float ms = 0;
      CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
      if (i >= 2) times.push_back(1e3 * ms), total += 1e3 * ms;
    }
  }
  cudaEventDestroy(begin), cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

inline double bench_extend(const char* name, const Kernel& kernel, const ExtendShape& shape,
                           const Pool& pool) {
  const ExtendStep step(kernel, shape, pool);
  const double us = rested_time([&] { kernel.launch(step.params(), step.max_items(), nullptr); });
  const double rate = shape.flops() / us * 1e-6;
  std::printf("%-34s B%zu S%d/%d D%d/%d %s %s%d  %9.1f us  %5.0f TFLOP/s\n", name, shape.seqs.size(),
              shape.seqs[0].n_q, shape.seqs[0].n_k, shape.d, shape.dv, shape.mask.causal ? "causal" : "full",
              shape.page == 0 ? "ragged" : "p", shape.page, us, rate);
  std::fflush(stdout);
  return rate;
}

/// Causal or full prefill of `batch` sequences, keys in pages of `page` (0 = ragged).
inline double bench_extend(const char* name, const Kernel& kernel, int batch, int length, int page,
                           const Pool& pool, int d, bool causal) {
  return bench_extend(name, kernel, uniform(batch, length, page, d, causal), pool);
}

}  // namespace fovea::cuda
