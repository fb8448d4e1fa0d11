#include "flex/gpu_attention.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>

#include "base/digest.h"
#include "base/log.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"
#include "device/stream.h"
#include "flex/gpu/gpu_args.h"
#include "flex/gpu_source.h"
#include "flex/interval.h"
#include "flex/kernel_cache.h"
#include "flex/nvrtc.h"

namespace fovea::flex {
namespace {

// ---- kernels ----

/// A kernel in a device's memory; kept until the process ends.
struct Loaded {
  cudaKernel_t kernel = nullptr;
};

Result<std::string> compiled_code(const std::string& source, const std::string& arch) {
  // Without the compiler, kernels in the cache are not used either: its version is part of what they must
  // match.
  FOVEA_TRY(compiler, nvrtc_version());
  const KernelKey key = {Digest().add(source).value(), arch, FOVEA_VERSION " nvrtc " + compiler};
  const std::string folder = kernel_cache_folder();
  std::string note;
  const auto tell = [&note] {
    if (!note.empty()) {
      FOVEA_LOG(warning) << "flex_attention: " << note;
    }
    note.clear();
  };
  if (auto cached = read_kernel(folder, key, note)) return *std::move(cached);
  tell();
  FOVEA_TRY(compiled, nvrtc_compile(source, arch));
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.2f", compiled.seconds);
  FOVEA_LOG(warning) << "flex_attention: compiled a kernel for " << arch << " in " << seconds << " s";
  write_kernel(folder, key, compiled.cubin, note);
  tell();
  return std::move(compiled.cubin);
}

Result<cudaKernel_t> kernel_of(const Program& program, const GpuVariant& variant, int device) {
  static std::mutex mutex;
  static std::map<std::pair<uint64_t, int>, Loaded> loaded;
  const uint64_t hash = Digest()
                            .add(program.hash())
                            .add(variant.dtype)
                            .add(variant.head_dim)
                            .add(variant.v_head_dim)
                            .add(variant.aligned)
                            .add(variant.positive_scale)
                            .value();
  const std::lock_guard lock(mutex);
  Loaded& entry = loaded[{hash, device}];
  if (entry.kernel != nullptr) return entry.kernel;
  int major = 0, minor = 0;
  FOVEA_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  FOVEA_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  if (major < 8)
    return unsupported("flex_attention on a GPU needs compute capability 8.0 or more, not " +
                       std::to_string(major) + "." + std::to_string(minor) + ": run it on the CPU");
  FOVEA_TRY(code, compiled_code(gpu_source(program, variant), "sm_" + std::to_string(10 * major + minor)));
  cudaLibrary_t library = nullptr;
  FOVEA_CUDA_TRY(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  cudaKernel_t kernel = nullptr;
  FOVEA_CUDA_TRY(cudaLibraryGetKernel(&kernel, library, "flex_kernel"));
  const GpuLaunch launch = gpu_launch(variant);
  int most = 0;
  FOVEA_CUDA_TRY(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  if (launch.shared_bytes > static_cast<size_t>(most))
    return unsupported("flex_attention needs " + std::to_string(launch.shared_bytes) +
                       " bytes of shared memory for these head sizes; the GPU has " + std::to_string(most) +
                       ": use smaller heads, or the CPU");
  FOVEA_CUDA_TRY(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(launch.shared_bytes)));
  entry.kernel = kernel;
  return kernel;
}

// ---- the schedule ----

/// Tiles of 64 rows, those with most blocks first, and the blocks of 64 keys of each.
struct Schedule {
  std::vector<flex_gpu::Tile> tiles;
  std::vector<flex_gpu::Range> ranges;
  std::vector<int32_t> blocks;
  bool by_head = false;
};

class Scheduler {
 public:
  Scheduler(const Program& program, std::span<const Buffer> host_buffers, const AttentionSpec& spec,
            const BatchMeta& meta)
      : spec_(spec), meta_(meta) {
    if (!program.mask) return;
    analysis_.emplace(*program.mask, program.buffers, host_buffers);
    scratch_ = analysis_->scratch();
    by_head_ = (program.mask->depends() & bit_of(Variable::h)) != 0;
  }

  Schedule run(FlexBlocks* blocks) {
    Schedule all;
    all.by_head = by_head_;
    const int heads = by_head_ ? spec_.num_heads : 1;
    struct Lists {
      flex_gpu::Tile tile;
      std::vector<std::vector<int32_t>> of_head;
      size_t longest = 0;
    };
    std::vector<Lists> lists;
    for (int b = 0; b < meta_.num_seqs(); ++b) {
      const auto at = static_cast<size_t>(b);
      const int n_q = meta_.q_offsets[at + 1] - meta_.q_offsets[at], n_k = meta_.kv_lens[at];
      // Blocks of 128 x 128, and those that are partial again in quarters.
      for (int q = 0; q < n_q; q += 2 * kGpuRows) {
        const int tiles = q + kGpuRows < n_q ? 2 : 1;
        for (int t = 0; t < tiles; ++t)
          lists.push_back(
              {{b, q + t * kGpuRows}, std::vector<std::vector<int32_t>>(static_cast<size_t>(heads))});
        for (int h = 0; h < heads; ++h)
          for (int k = 0; k < n_k; k += 2 * kGpuKeys)
            add(std::span(lists).last(static_cast<size_t>(tiles)), b, h, n_q, n_k, q, k,
                [](Lists& l, int head) { return &l.of_head[static_cast<size_t>(head)]; });
      }
    }
    for (Lists& l : lists)
      for (const auto& list : l.of_head)
        l.longest = std::max(l.longest, list.size());
    std::ranges::stable_sort(lists, [](const Lists& a, const Lists& b) { return a.longest > b.longest; });
    for (const Lists& l : lists) {
      all.tiles.push_back(l.tile);
      for (const auto& list : l.of_head) {
        const auto begin = static_cast<int>(all.blocks.size());
        all.blocks.insert(all.blocks.end(), list.begin(), list.end());
        all.ranges.push_back({begin, static_cast<int>(all.blocks.size())});
      }
    }
    if (blocks != nullptr) *blocks = counts_;
    return all;
  }

 private:
  Coverage cover(int b, int h, int n_q, int n_k, int q, int rows, int k, int keys) {
    if (!analysis_) return Coverage::full;
    const auto one = [](int x) { return Interval{static_cast<double>(x), static_cast<double>(x)}; };
    const auto range = [](int first, int count) {
      return Interval{static_cast<double>(first), static_cast<double>(first + count - 1)};
    };
    const Interval heads = by_head_ ? one(h) : range(0, spec_.num_heads);
    return analysis_->coverage({one(b), heads, range(q, std::min(rows, n_q - q)),
                                range(k, std::min(keys, n_k - k)), one(n_q), one(n_k)},
                               scratch_);
  }

  template <class Lists, class ListOf>
  void add(Lists tiles, int b, int h, int n_q, int n_k, int q, int k, ListOf list_of) {
    const Coverage whole = cover(b, h, n_q, n_k, q, 2 * kGpuRows, k, 2 * kGpuKeys);
    (whole == Coverage::empty  ? counts_.empty
     : whole == Coverage::full ? counts_.full
                               : counts_.partial) += 1;
    if (whole == Coverage::empty) return;
    for (size_t t = 0; t < tiles.size(); ++t)
      for (int first = k; first < std::min(k + 2 * kGpuKeys, n_k); first += kGpuKeys) {
        const Coverage part =
            whole == Coverage::full
                ? whole
                : cover(b, h, n_q, n_k, q + static_cast<int>(t) * kGpuRows, kGpuRows, first, kGpuKeys);
        if (part != Coverage::empty)
          list_of(tiles[t], h)->push_back(2 * first + (part == Coverage::full ? 1 : 0));
      }
  }

  const AttentionSpec& spec_;
  const BatchMeta& meta_;
  std::optional<Analysis> analysis_;
  Analysis::Scratch scratch_;
  bool by_head_ = false;
  FlexBlocks counts_;
};

// ---- the call ----

/// The buffers that the mask reads, copied to the host; the others stay null.
struct HostBuffers {
  std::vector<std::vector<std::byte>> memory;
  std::vector<Buffer> buffers;
};

Result<HostBuffers> copy_to_host(const Program& program, const std::vector<Buffer>& device,
                                 CudaStream& stream) {
  HostBuffers host;
  host.buffers = device;
  host.memory.resize(device.size());
  if (!program.mask) return host;
  for (const Node& n : program.mask->nodes()) {
    if (n.op != Op::read1 && n.op != Op::read2) continue;
    const auto at = static_cast<size_t>(n.index);
    if (!host.memory[at].empty()) continue;
    const Buffer& b = device[at];
    const size_t size = program.buffers[at].element == Type::boolean ? 1 : 4;
    host.memory[at].resize(size * static_cast<size_t>((b.rows - 1) * b.stride + b.columns));
    FOVEA_RETURN_IF_ERROR(stream.copy(host.memory[at].data(), b.data, host.memory[at].size()));
    host.buffers[at].data = host.memory[at].data();
  }
  FOVEA_RETURN_IF_ERROR(stream.synchronize());
  return host;
}

bool multiple_of_16(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

/// Device memory of a call, freed in the order of the stream.
class StreamMemory {
 public:
  explicit StreamMemory(CudaStream& stream) : stream_(stream) {}
  StreamMemory(const StreamMemory&) = delete;
  StreamMemory& operator=(const StreamMemory&) = delete;
  ~StreamMemory() {
    for (void* p : blocks_)
      (void)cudaFreeAsync(p, stream_.handle());
  }
  template <class T>
  Result<const T*> put(const std::vector<T>& values) {
    void* p = nullptr;
    const size_t bytes = std::max<size_t>(values.size() * sizeof(T), 16);
    FOVEA_CUDA_TRY(cudaMallocAsync(&p, bytes, stream_.handle()));
    blocks_.push_back(p);
    if (!values.empty()) FOVEA_RETURN_IF_ERROR(stream_.copy(p, values.data(), values.size() * sizeof(T)));
    return static_cast<const T*>(p);
  }

 private:
  CudaStream& stream_;
  std::vector<void*> blocks_;
};

/// Where keys are: a sequence's are a constant stride apart, or in pages.
struct Keys {
  bool paged = false;
  int64_t k_stride = 0, v_stride = 0;
  std::vector<int32_t> table;  ///< [B, stride], when paged
  int64_t table_stride = 0;
};

Keys keys_of(const BatchMeta& meta, const KvView& kv) {
  const auto pages_of = [&](int b) {
    return (meta.kv_lens[static_cast<size_t>(b)] + kv.page_size - 1) / kv.page_size;
  };
  bool one_page = true, rows = kv.page_size == 1;
  int64_t most = 1;
  for (int b = 0; b < meta.num_seqs(); ++b) {
    const int pages = pages_of(b);
    one_page = one_page && pages <= 1;
    most = std::max<int64_t>(most, pages);
    for (int i = 1; i < pages && rows; ++i)
      rows = meta.pages(b)[i] == meta.pages(b)[0] + i;
  }
  if (one_page) return {false, kv.k_slot_stride, kv.v_slot_stride, {}, 0};
  if (rows) return {false, kv.k_page_stride, kv.v_page_stride, {}, 0};
  Keys keys = {true, kv.k_slot_stride, kv.v_slot_stride, {}, most};
  keys.table.assign(static_cast<size_t>(meta.num_seqs() * most), 0);
  for (int b = 0; b < meta.num_seqs(); ++b)
    if (pages_of(b) > 0) std::copy_n(meta.pages(b), pages_of(b), keys.table.begin() + b * most);
  return keys;
}

/// Where the sequences' rows are. Error: padded batches whose blocks are not the sequences.
Result<std::vector<flex_gpu::Seq>> sequences(const AttentionSpec& spec, const BatchMeta& meta,
                                             const AttentionArgs& args, bool paged) {
  std::vector<flex_gpu::Seq> seqs;
  for (int b = 0; b < meta.num_seqs(); ++b) {
    const auto at = static_cast<size_t>(b);
    const int64_t token = meta.q_offsets[at];
    flex_gpu::Seq s = {};
    s.token = token;
    s.qlen = static_cast<int>(meta.q_offsets[at + 1] - token);
    s.klen = meta.kv_lens[at];
    for (const int block : {args.q_block_rows, args.out_block_rows})
      if (block != 0 && (token % block != 0 || s.qlen > block))
        return unsupported(
            "flex_attention on a GPU takes padded batches with one sequence per block of rows");
    s.q = args.q_offset(token, 0, spec.head_dim);
    s.out = args.out_offset(token, 0, spec.v_head_dim);
    if (!paged && s.klen > 0) {
      s.k = meta.pages(b)[0] * args.kv.k_page_stride;
      s.v = meta.pages(b)[0] * args.kv.v_page_stride;
    }
    seqs.push_back(s);
  }
  return seqs;
}

class CudaStep : public GpuAttention {
 public:
  explicit CudaStep(CudaStream& stream) : stream_(stream), memory_(stream) {}

  const FlexBlocks& blocks() const override { return blocks_; }
  int64_t visited() const override { return visited_; }

  Status run() override {
    constexpr size_t kMostTiles = 65535;  // of a grid's second dimension
    for (size_t first = 0; first < tiles_; first += kMostTiles) {
      const size_t count = std::min(kMostTiles, tiles_ - first);
      flex_gpu::Args a = args_;
      a.tiles += first;
      a.ranges += first * static_cast<size_t>(a.heads_in_ranges != 0 ? heads_ : 1);
      void* arguments[] = {&a};
      FOVEA_CUDA_TRY(cudaLaunchKernel(reinterpret_cast<const void*>(kernel_),
                                      dim3(static_cast<unsigned>(heads_), static_cast<unsigned>(count)),
                                      dim3(static_cast<unsigned>(launch_.threads)), arguments,
                                      launch_.shared_bytes, stream_.handle()));
    }
    return {};
  }

  CudaStream& stream_;
  StreamMemory memory_;
  flex_gpu::Args args_ = {};
  cudaKernel_t kernel_ = nullptr;
  GpuLaunch launch_;
  int heads_ = 0;
  size_t tiles_ = 0;
  int64_t visited_ = 0;
  FlexBlocks blocks_;
};

}  // namespace

Result<std::unique_ptr<GpuAttention>> GpuAttention::plan(const Program& program,
                                                         const std::vector<Buffer>& buffers,
                                                         const AttentionSpec& spec, const BatchMeta& meta,
                                                         const AttentionArgs& args, Stream& stream) {
  CudaStream& cuda = stream.cuda();
  auto step = std::make_unique<CudaStep>(cuda);
  const KvView& kv = args.kv;
  if (kv.dtype != resolve(KvCacheDType::auto_, spec.dtype) || kv.k_scale != 1.0f || kv.v_scale != 1.0f)
    return unsupported("flex_attention on a GPU takes q, k and v of one dtype, without scales");
  const Keys keys = keys_of(meta, kv);
  GpuVariant variant = {spec.dtype, spec.head_dim, spec.v_head_dim, true, spec.scale > 0};
  if (spec.dtype != DType::f32) {
    variant.aligned = spec.head_dim % 8 == 0 && spec.v_head_dim % 8 == 0 && multiple_of_16(args.q) &&
                      multiple_of_16(kv.k) && multiple_of_16(kv.v);
    for (const int64_t stride : {args.q_offset(1, 0, spec.head_dim), args.q_offset(0, 1, spec.head_dim),
                                 args.q_block_stride, keys.k_stride, keys.v_stride, kv.k_head_stride,
                                 kv.v_head_stride, kv.k_page_stride, kv.v_page_stride})
      variant.aligned = variant.aligned && stride % 8 == 0;
  }
  FOVEA_RETURN_IF_ERROR(check_gpu(program, variant));
  FOVEA_TRY(kernel, kernel_of(program, variant, cuda.device()));
  FOVEA_TRY(host, copy_to_host(program, buffers, cuda));
  const Schedule schedule = Scheduler(program, host.buffers, spec, meta).run(&step->blocks_);
  FOVEA_TRY(seqs, sequences(spec, meta, args, keys.paged));

  flex_gpu::Args& a = step->args_;
  StreamMemory& memory = step->memory_;
  FOVEA_TRY(device_seqs, memory.put(seqs));
  FOVEA_TRY(device_tiles, memory.put(schedule.tiles));
  FOVEA_TRY(device_ranges, memory.put(schedule.ranges));
  FOVEA_TRY(device_blocks, memory.put(schedule.blocks));
  a.seqs = device_seqs;
  a.tiles = device_tiles;
  a.ranges = device_ranges;
  a.blocks = device_blocks;
  a.q = args.q;
  a.k = kv.k;
  a.v = kv.v;
  a.out = args.out;
  a.lse = args.lse;
  if (keys.paged) {
    FOVEA_TRY(table, memory.put(keys.table));
    a.page_table = table;
    a.page_table_stride = keys.table_stride;
  }
  a.page_size = kv.page_size;
  a.k_page_stride = kv.k_page_stride;
  a.v_page_stride = kv.v_page_stride;
  a.q_row_stride = args.q_row_stride;
  a.q_head_stride = args.q_offset(0, 1, spec.head_dim);
  a.out_row_stride = args.out_row_stride;
  a.out_head_stride = args.out_offset(0, 1, spec.v_head_dim);
  a.k_row_stride = keys.k_stride;
  a.v_row_stride = keys.v_stride;
  a.k_head_stride = kv.k_head_stride;
  a.v_head_stride = kv.v_head_stride;
  a.group = spec.num_heads / spec.num_kv_heads;
  a.heads_in_ranges = schedule.by_head ? 1 : 0;
  a.scale = spec.scale;
  for (size_t i = 0; i < buffers.size(); ++i)
    a.buffers[i] = {buffers[i].data, buffers[i].rows, buffers[i].columns, buffers[i].stride};

  step->kernel_ = kernel;
  step->launch_ = gpu_launch(variant);
  step->heads_ = spec.num_heads;
  step->tiles_ = schedule.tiles.size();
  step->visited_ = static_cast<int64_t>(schedule.blocks.size()) * (schedule.by_head ? 1 : spec.num_heads);
  return std::unique_ptr<GpuAttention>(std::move(step));
}

}  // namespace fovea::flex
