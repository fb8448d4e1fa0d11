#pragma once
// What an executor needs of a device beside its memory and operations: a stream, copies of results beside
// it, marks to wait for, and graphs.
#include <cstddef>
#include <functional>
#include <memory>

#include "device/stream.h"
#include "fovea/result.h"
#include "kernels/cuda/ngram/ngram.h"
#include "kernels/cuda/sample/sample.h"
#include "tensor/device.h"

namespace fovea {

/// Work of one stream, captured once and replayed.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Queues the work; it reads memory as it is then.
  virtual Status replay() = 0;
};

/// Used by one thread at a time.
class DeviceQueue {
 public:
  /// Marks are numbered from 0; a mark can be set again. The last one is that of drafts.
  static constexpr int kDraftMark = 16, kMarks = kDraftMark + 1;

  virtual ~DeviceQueue() = default;

  virtual Device& device() = 0;
  virtual Stream& stream() = 0;
  /// Call first on each thread that uses the queue.
  virtual void begin_thread() {}

  /// Queues cuda::launch_sample(), whose scratch has this many bytes for up to `rows` rows of `width` logits.
  virtual Status sample(const cuda::SampleArgs& args) = 0;
  virtual int64_t sample_scratch_bytes(int rows, int width) = 0;
  /// Queues cuda::launch_place() and cuda::launch_follow().
  virtual Status place(const cuda::PlaceArgs& args) = 0;
  virtual Status follow(const cuda::FollowArgs& args) = 0;
  /// Copies to host memory when everything on the stream so far is done, while its later work goes on.
  virtual Status copy_beside(void* to, const void* from, size_t bytes) = 0;
  /// The stream's later work waits for the copies so far.
  virtual Status wait_for_copies() = 0;
  /// Sets a mark that is reached when all work of the stream so far is done, or all copies so far.
  virtual Status mark(int mark) = 0;
  virtual Status mark_beside(int mark) = 0;
  /// Does not block. Errors: those of the device's work.
  virtual Result<bool> reached(int mark) = 0;
  /// An error if the device accepts no work any more, as after a kernel's illegal access.
  virtual Status health() { return {}; }

  /// Captures what `work` queues on stream(); nothing runs.
  virtual Result<std::unique_ptr<DeviceGraph>> capture(const std::function<Status()>& work) = 0;
};

}  // namespace fovea
