#include "attention/select_test_support.h"

namespace fovea {
namespace {

class Explain : public CpuSelectTest {};

TEST_F(Explain, ALineAPhaseAndAKindOnlyWhereTheyDiffer) {
  EXPECT_EQ(explain(*choose({.backend = "plain"}, {llama_spec(), window_spec()})),
            "prefill: PLAIN (given: AttentionConfig::backend plain)\n"
            "decode: PLAIN (given: AttentionConfig::backend plain)");
  EXPECT_EQ(explain(*choose({.backend = "decode=plain,full.prefill=fast,swa.prefill=plain"},
                            {llama_spec(), window_spec(), encoder_spec()})),
            "full.prefill: FAST_ATTN (given: AttentionConfig::backend fast)\n"
            "sliding_window.prefill: PLAIN (given: AttentionConfig::backend plain)\n"
            "encoder.prefill: PLAIN (automatic: the only one that serves this model on cpu)\n"
            "decode: PLAIN (given: AttentionConfig::backend plain)");
}

TEST_F(Explain, InFull) {
  EXPECT_EQ(explain_in_full(considered({.page_size = 16})),
            R"(full.prefill: PLAIN (automatic: the only one that serves this model on cpu)
  1. FAST_ATTN
     - block_size not supported
       fix: --page-size 32: it takes multiples of 32 from 32 to 1024
  2. PLAIN: serves
  3. DECODER
     - block_size not supported
       fix: --prefill-attention-backend PLAIN: serves it here
     - prefill not supported
       fix: --prefill-attention-backend PLAIN: serves it here

full.decode: PLAIN (automatic: the only one that serves this model on cpu)
  1. FAST_ATTN
     - block_size not supported
       fix: --page-size 32: it takes multiples of 32 from 32 to 1024
  2. PLAIN: serves
  3. DECODER
     - block_size not supported
       fix: --page-size 64: it takes 64

values
  full.prefill = PLAIN (automatic: the only one that serves this model on cpu)
  full.decode = PLAIN (automatic: the only one that serves this model on cpu)
  page_size = 16 (given: AttentionConfig::page_size)
  dtype = float32 (config.json)
  kv_cache_dtype = auto (float32) (default)
  batch_invariant = 0 (default)
  provenance = prompts from prefill, answers from decode (full layers: PLAIN does not claim chunking; the chunks of a prompt may change its bits, since PLAIN does not claim prefill_chunks)

warnings
  --block-size 16 precluded higher-priority backend(s) FAST_ATTN. Using PLAIN instead, which may result in reduced performance.
)");
}

TEST_F(Explain, WhatIsNotBuilt) {
  device = cuda(90);
  EXPECT_EQ(explain_in_full(considered({.backend = "gpu"})),
            R"(full.prefill: none, GPU_ATTN if it were built (given: AttentionConfig::backend gpu)
  1. GPU_ATTN
     - not in this build: its CUDA kernels are not written yet
       fix: FAST_ATTN serves it on cpu
  error: Selected backend GPU_ATTN is not valid for this configuration. Reason: ['not in this build: its CUDA kernels are not written yet']. Fix: FAST_ATTN serves it on cpu. This build has: FAST_ATTN, PLAIN, DECODER.

full.decode: none, GPU_ATTN if it were built (given: AttentionConfig::backend gpu)
  1. GPU_ATTN
     - not in this build: its CUDA kernels are not written yet
       fix: FAST_ATTN serves it on cpu
  error: Selected backend GPU_ATTN is not valid for this configuration. Reason: ['not in this build: its CUDA kernels are not written yet']. Fix: FAST_ATTN serves it on cpu. This build has: FAST_ATTN, PLAIN, DECODER.

values
  full.prefill = none (GPU_ATTN is not in this build) (given: AttentionConfig::backend gpu)
  full.decode = none (GPU_ATTN is not in this build) (given: AttentionConfig::backend gpu)
  page_size = 16 (preferred by GPU_ATTN)
  dtype = float32 (config.json)
  kv_cache_dtype = auto (float32) (default)
  batch_invariant = 0 (default)
  no page size: a phase has no backend
)");
}

}  // namespace
}  // namespace fovea
