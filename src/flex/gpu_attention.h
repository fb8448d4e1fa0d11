#pragma once
// flex_attention() on a GPU: compiles the kernel, analyses the mask, launches.
#include <memory>
#include <vector>

#include "flex/op.h"
#include "flex/program.h"
#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"
#include "fovea/flex_attention.h"

namespace fovea::flex {

/// One layer of one step, which may run any number of times.
class GpuAttention {
 public:
  virtual ~GpuAttention() = default;

  /// Compiles the kernel or takes it from the cache, analyses the mask, and copies the schedule to the
  /// device. The arrays of `meta` are in host memory, the buffers and tensors in the device's. Waits for the
  /// buffers that the mask reads, and for a kernel that must be compiled.
  static Result<std::unique_ptr<GpuAttention>> plan(const Program& program,
                                                    const std::vector<Buffer>& buffers,
                                                    const AttentionSpec& spec, const BatchMeta& meta,
                                                    const AttentionArgs& args, Stream& stream);
  /// Queues the kernel on the stream of plan().
  virtual Status run() = 0;

  virtual const FlexBlocks& blocks() const = 0;
  /// How many blocks of 64 rows and 64 keys the kernel visits, over all query heads.
  virtual int64_t visited() const = 0;
};

}  // namespace fovea::flex
