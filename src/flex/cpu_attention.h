#pragma once
// flex_attention() on the CPU.
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "flex/cpu_kernels.h"
#include "flex/program.h"
#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"
#include "fovea/flex_attention.h"

namespace fovea {
class ThreadPool;
}

namespace fovea::flex {

struct CpuStep;

/// One step: what all of its layers share. Makes no allocation in run().
class CpuAttention {
 public:
  static constexpr int kMaxSlots = 64;  ///< threads that take part

  /// Bytes of scratch memory for `slots` threads, 64-byte aligned.
  static size_t scratch_bytes(const Program& program, const AttentionSpec& spec, int slots);

  /// Everything has been checked. `buffers` are in the program's order; those that the mask reads are
  /// analysed now. All arguments but `meta`, whose arrays are referred to, must outlive the object.
  CpuAttention(const Program& program, const std::vector<Buffer>& buffers, const AttentionSpec& spec,
               const BatchMeta& meta);
  ~CpuAttention();

  /// One layer. `buffers` may differ from the constructor's in what the score alone reads. `scratch` has
  /// scratch_bytes() for at least one slot; as many threads run as it has slots. `blocks` may be null.
  void run(std::span<const Buffer> buffers, const AttentionArgs& args, ThreadPool& pool,
           std::span<std::byte> scratch, FlexBlocks* blocks) const;

 private:
  std::unique_ptr<CpuStep> step_;
};

}  // namespace fovea::flex
