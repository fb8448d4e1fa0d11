// fovea bench attention: CPU_ATTN against the roofline. Prefill is compute-bound: reported as a share of the
// fp32 FMA peak. Decode must read K and V once: reported as a share of a plain read of the same memory.
// CPU_MLA's decode multiplies each element of a record for every head: reported as a share of the peak too.
#include <cstdio>

#include "attention/kv_view.h"
#include "backends/cpu_attn/bench.h"
#include "base/dtype_names.h"
#include "base/thread_pool.h"
#include "cli/json_io.h"
#include "cli/options.h"
#include "kernels/cpu/machine.h"

namespace fovea::cli {
namespace {

// Decode rotates over this many bytes of KV, like a model with many layers; fewer would stay in the LLC.
constexpr int64_t kRotateBytes = int64_t{512} << 20;

AttentionBenchCase make_case(const BenchAttentionFlags& flags, bool decode, KvCacheDType kv_dtype,
                             KvLayout kv_layout) {
  AttentionBenchCase c;
  c.num_heads = flags.num_heads;
  c.num_kv_heads = flags.num_kv_heads;
  c.head_dim = c.v_head_dim = flags.head_dim;
  if (flags.mla_heads > 0) {
    c.mla = true;
    c.num_heads = flags.mla_heads;
    c.num_kv_heads = 1;
    c.head_dim = 576;
    c.v_head_dim = 512;
  }
  c.page_size = flags.page_size;
  c.kv_dtype = kv_dtype;
  c.kv_layout = kv_layout;
  c.kv_len = flags.seq_len > 0 ? flags.seq_len : decode ? 16384 : 2048;
  c.q_len = decode ? 1 : c.kv_len;
  c.batch = flags.batch > 0 ? flags.batch : decode ? 8 : 1;
  c.rotate_bytes = decode ? kRotateBytes : 0;
  return c;
}

void run_phase(const BenchAttentionFlags& flags, bool decode, KvCacheDType kv_dtype, KvLayout kv_layout,
               const MachineRates& machine, ThreadPool& pool) {
  const AttentionBenchCase c = make_case(flags, decode, kv_dtype, kv_layout);
  const AttentionBenchResult result = bench_cpu_attention(c, pool, 2.0);
  const double gflops = result.flops / result.seconds * 1e-9;
  const double gbps = result.kv_bytes / result.seconds * 1e-9;
  const bool reads = decode && !c.mla;
  const double share = reads ? result.read_seconds / result.seconds : gflops / machine.peak_gflops();
  const char* phase = decode ? "decode" : "prefill";
  if (flags.json) {
    JsonRow row;
    row.add("phase", phase).add("threads", pool.size()).add("isa", to_string(current_isa()));
    row.add("heads", c.num_heads).add("kv_heads", c.num_kv_heads).add("head_dim", c.head_dim);
    row.add("kv_len", c.kv_len).add("q_len", c.q_len).add("batch", c.batch).add("page_size", c.page_size);
    row.add("kv_dtype", to_string(kv_dtype))
        .add("kv_layout", to_string(kv_layout))
        .add("runs", result.runs)
        .add("ms", result.seconds * 1e3);
    row.add("gflops", gflops).add("kv_gb_s", gbps).add("fma_peak_gflops", machine.peak_gflops());
    row.add("plain_read_gb_s", result.kv_bytes / result.read_seconds * 1e-9).add("share_of_limit", share);
    std::puts(row.str().c_str());
    return;
  }
  std::printf(
      "%-8s %d/%d heads, D %d, %d keys, batch %d, page %d, %s %s: %9.3f ms  %7.1f GFLOP/s  %6.2f GB/s of "
      "KV\n",
      phase, c.num_heads, c.num_kv_heads, c.head_dim, c.kv_len, c.batch, c.page_size,
      std::string(to_string(kv_dtype)).c_str(), std::string(to_string(kv_layout)).c_str(),
      result.seconds * 1e3, gflops, gbps);
  if (reads)
    std::printf("         %.0f %% of a plain read of the same K and V in turn (%.2f GB/s)\n", share * 100,
                result.kv_bytes / result.read_seconds * 1e-9);
  else
    std::printf("         %.0f %% of the fp32 FMA peak\n", share * 100);
}

}  // namespace

Status run_bench_attention(const BenchAttentionFlags& flags) {
  FOVEA_TRY(name, read_kv_cache_dtype(flags.kv_cache_dtype));
  const KvCacheDType kv_dtype = resolve(name, DType::f32);
  if (kv_dtype == KvCacheDType::fp8_ds_mla)
    return unsupported("--kv-cache-dtype fp8_ds_mla is not measured here; use fp8_e4m3");
  if (size_of(kv_dtype) == 0)
    return unsupported("--kv-cache-dtype " + flags.kv_cache_dtype +
                       ": not stored by this build; allowed are " + stored_kv_cache_dtypes());
  FOVEA_TRY(given, read_kv_layout(flags.kv_layout));
  const KvLayout layout = given == KvLayout::auto_ ? KvLayout::hnd : given;
  FOVEA_RETURN_IF_ERROR(check_layout(layout, kv_dtype, flags.page_size, flags.head_dim));
  if (flags.mla_heads > 0 && layout != KvLayout::hnd && layout != KvLayout::nhd)
    return invalid("--kv-layout " + flags.kv_layout + ": MLA's records are contiguous; use hnd or nhd");
  if (flags.num_heads % flags.num_kv_heads != 0)
    return invalid("--heads " + std::to_string(flags.num_heads) + " must be a multiple of --kv-heads " +
                   std::to_string(flags.num_kv_heads));
  if (flags.head_dim % 8 != 0)
    return invalid("--head-dim " + std::to_string(flags.head_dim) +
                   ": allowed are multiples of 8 from 16 to 512");
  ThreadPool pool(flags.threads);
  const MachineRates machine = measure_machine(pool);
  if (!flags.json)
    std::printf("%d threads, %s: fp32 FMA peak %.1f GFLOP/s, read bandwidth from memory %.1f GB/s\n",
                pool.size(), std::string(to_string(current_isa())).c_str(), machine.peak_gflops(),
                machine.dram_gbps());
  if (flags.phase != "decode") run_phase(flags, false, kv_dtype, layout, machine, pool);
  if (flags.phase != "prefill") run_phase(flags, true, kv_dtype, layout, machine, pool);
  return {};
}

}  // namespace fovea::cli
