#pragma once
// Benchmarks backends on the attention of one layer.
#include <cstdint>

#include "fovea/attention_backend.h"

namespace fovea {

class ThreadPool;

struct AttentionBenchCase {
  int num_heads = 32, num_kv_heads = 8;
  int head_dim = 128, v_head_dim = 128;
  bool mla = false;                                // absorbed: records of head_dim hold K and V, one KV head
  DType dtype = DType::f32;                        // Q and O
  KvCacheDType kv_dtype = KvCacheDType::bfloat16;  // of the cache; a stored type, not auto
  KvLayout kv_layout = KvLayout::hnd;
  int batch = 1;
  int q_len = 2048;   // new tokens of each sequence; 1 = decode
  int kv_len = 2048;  // keys of each sequence, the new ones included
  int page_size = 16;
  int64_t rotate_bytes = 0;  // copies of K and V fill this many bytes, and runs rotate through them
};

struct AttentionBenchResult {
  double seconds = 0;  // of one forward call, the median; without planning
  double flops = 0;    // 2 x Hq x (D + Dv) for each visible (query, key) pair under the causal mask
  double kv_bytes =
      0;  // K and V (MLA: records) of all sequences, with the scales of their tokens, each byte once
  double read_seconds = 0;  // of a plain read of the same K and V, interleaved with the calls; the median
  int runs = 0;
};

/// Causal attention of `backend` over pages in shuffled order, in c.kv_layout. Runs at least twice and
/// for about `min_seconds`, after one warm-up run.
AttentionBenchResult bench_attention(AttentionBackend& backend, const AttentionBenchCase& c, ThreadPool& pool,
                                     double min_seconds = 0.5);
/// bench_attention() for CPU_ATTN, or CPU_MLA.
AttentionBenchResult bench_cpu_attention(const AttentionBenchCase& c, ThreadPool& pool,
                                         double min_seconds = 0.5);

}  // namespace fovea
