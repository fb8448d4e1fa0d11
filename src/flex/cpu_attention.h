#pragma once
// flex_attention() on the CPU.
#include <cstddef>
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

/// Bytes of scratch memory for one thread, 64-byte aligned.
size_t cpu_scratch_bytes(const Program& program, const AttentionSpec& spec);

/// One layer; everything has been checked. `buffers` in the program's order. `scratch` has
/// cpu_scratch_bytes() for each thread of the pool.
void cpu_attention(const Program& program, std::span<const Buffer> buffers, const AttentionSpec& spec,
                   const BatchMeta& meta, const AttentionArgs& args, ThreadPool& pool,
                   std::span<std::byte> scratch, FlexBlocks* blocks);

}  // namespace fovea::flex
