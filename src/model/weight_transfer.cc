#include "model/weight_transfer.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"

namespace fovea {
namespace {

DType dtype_of(ElementType type) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    if (element_of(dtype) == type) return dtype;
  FOVEA_CHECK(false);
}

/// Bytes of a row as pack_rows() takes it.
int64_t row_bytes(const LinearWeight& w) {
  const WeightCode code = code_of(w.format.layout);
  return code == WeightCode::none ? w.k * static_cast<int64_t>(size_of(w.format.stored))
                                  : code_row_bytes(code, w.k);
}

/// Rows of one matrix.
struct Slice {
  const WeightTransfer* transfer = nullptr;
  int64_t first = 0, rows = 0;

  int64_t bytes() const { return rows * row_bytes(transfer->weight); }
};

std::vector<Slice> slices_of(std::span<const WeightTransfer> transfers, int threads) {
  const int64_t wanted = std::min(kTransferSlice, kTransferMemory / threads);
  std::vector<Slice> slices;
  for (const WeightTransfer& t : transfers) {
    const int64_t row = row_bytes(t.weight);
    const int64_t most = std::max<int64_t>(wanted / row, 1);
    const int64_t count = (t.weight.n + most - 1) / most;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first = t.weight.n * i / count;
      slices.push_back({&t, first, t.weight.n * (i + 1) / count - first});
    }
  }
  return slices;
}

/// Host memory of a device.
class HostBlock {
 public:
  HostBlock(Device& device, size_t bytes)
      : device_(device), bytes_(bytes), data_(static_cast<std::byte*>(device.allocate_host(bytes))) {}
  ~HostBlock() { device_.release_host(data_, bytes_); }
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;
  std::byte* data() const { return data_; }

 private:
  Device& device_;
  size_t bytes_;
  std::byte* data_;
};

class Transfer {
 public:
  Transfer(Ops& ops, Stream& stream, std::span<const Slice> slices, int threads)
      : ops_(ops), stream_(stream), slices_(slices) {
    for (const Slice& slice : slices)
      slice_bytes_ = std::max(slice_bytes_, slice.bytes());
    host_.emplace(ops.device(), static_cast<size_t>(slice_bytes_ * threads));
    there_ = Buffer(ops.device(), static_cast<size_t>(slice_bytes_));
  }

  /// Reads slice `index` into the worker's memory, and sends it. Errors are kept.
  void run(int64_t index, int worker) {
    if (failed_) return;
    const Slice& slice = slices_[static_cast<size_t>(index)];
    const LinearWeight& weight = slice.transfer->weight;
    std::byte* memory = host_->data() + worker * slice_bytes_;
    const WeightSource& source = *slice.transfer->source;
    Status status = code_of(weight.format.layout) == WeightCode::none
                        ? source.read(slice.first, slice.rows, dtype_of(weight.format.stored), memory)
                        : source.read_codes(slice.first, slice.rows, memory);
    // One slice at a time is copied: that takes a fraction of the time to read it.
    const std::lock_guard lock(mutex_);
    if (status && !failed_) status = send(slice, memory);
    if (status) {
      read_ += slice.rows * source.row_bytes();
    } else if (!failed_) {
      failed_ = true;
      status_ = std::move(status);
    }
  }
  int64_t read() const { return read_; }
  const Status& status() const { return status_; }

 private:
  Status send(const Slice& slice, const std::byte* memory) {
    const LinearWeight& weight = slice.transfer->weight;
    const auto word = static_cast<int64_t>(size_of(weight.format.stored));
    const Tensor rows = there_.tensor(weight.format.stored, {slice.rows, row_bytes(weight) / word});
    const auto bytes = static_cast<size_t>(slice.bytes());
    Status queued = ops_.device().copy_from_host(rows.data, memory, bytes, stream_);
    if (queued) queued = ops_.pack_rows(weight, slice.first, rows, stream_);
    // Waits after an error too: the memory is used again.
    const Status done = ops_.device().synchronize(stream_);
    return queued ? done : queued;
  }

  Ops& ops_;
  Stream& stream_;
  std::span<const Slice> slices_;
  int64_t slice_bytes_ = 1;
  std::optional<HostBlock> host_;  // [threads] slices
  Buffer there_;                   // the slice that is packed
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  std::atomic<int64_t> read_{0};
  Status status_;
};

}  // namespace

Status read_weights(Ops& ops, Stream& stream, std::span<const WeightTransfer> transfers,
                    const PlaceOptions& options) {
  int64_t total = 0;
  for (const WeightTransfer& t : transfers) {
    FOVEA_CHECK(t.source->n() == t.weight.n && t.source->k() == t.weight.k);
    total += t.source->bytes();
  }
  std::optional<ThreadPool> own;
  ThreadPool& pool = options.pool ? *options.pool : own.emplace(1);
  const std::vector<Slice> slices = slices_of(transfers, pool.size());
  Transfer transfer(ops, stream, slices, pool.size());
  if (options.progress) options.progress(0, total);
  pool.parallel_tasks(static_cast<int64_t>(slices.size()), [&](int64_t index, int worker) {
    transfer.run(index, worker);
    if (worker == 0 && options.progress) options.progress(transfer.read(), total);
  });
  if (transfer.status() && options.progress) options.progress(total, total);
  return transfer.status();
}

}  // namespace fovea
