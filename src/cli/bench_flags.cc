// Flags of the benchmarks.
#include "cli/flags.h"

namespace fovea::cli {

void add_bench(CLI::App& root, BenchFlags& f) {
  auto& bench = *root.add_subcommand("bench", "Measure");
  bench.require_subcommand(1);
  auto& model =
      *bench.add_subcommand("model", "Tokens/s and bytes per token, as a share of the read bandwidth");
  start_group(model, "Benchmark");
  model.add_option("--prompt-tokens", f.model.prompt_tokens)
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  model.add_option("--new-tokens", f.model.new_tokens)->check(CLI::Range(2, 1 << 24))->capture_default_str();
  model.add_option("--batch", f.model.batch)->check(CLI::Range(1, 4096))->capture_default_str();
  takes_file(
      model.add_option("--steps", f.model.steps,
                       "On a GPU: a JSON file of a decode and a prefill step's operations, each with its "
                       "time, its floor and its kernels"));
  takes_file(model.add_option("--svg", f.model.svg, "On a GPU: a picture of the decode step"));
  add_json_flag(model, f.model.model);
  add_profile_flags(model, f.model.model);
  add_model_flags(model, f.model.model);
  add_lora_flags(model, f.model.model);
  auto& attention =
      *bench.add_subcommand("attention", "CPU_ATTN or CPU_MLA against the FMA peak and the read bandwidth");
  start_group(attention, "Benchmark");
  one_of(attention.add_option("--phase", f.attention.phase), {"prefill", "decode", "both"})
      ->capture_default_str();
  attention.add_option("--seq-len", f.attention.seq_len, "Keys (default: 2048 prefill, 16384 decode)")
      ->check(CLI::Range(1, 1 << 24));
  attention.add_option("--batch", f.attention.batch, "Sequences (default: 1 prefill, 8 decode)")
      ->check(CLI::Range(1, 4096));
  attention.add_option("--heads", f.attention.num_heads)->check(CLI::Range(1, 1024))->capture_default_str();
  attention.add_option("--kv-heads", f.attention.num_kv_heads)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  attention
      .add_option("--mla", f.attention.mla_heads,
                  "CPU_MLA in place of CPU_ATTN: query heads over one record of 576 elements a token")
      ->check(CLI::Range(1, 1024))
      ->excludes("--heads")
      ->excludes("--kv-heads");
  attention.add_option("--head-dim", f.attention.head_dim)->check(CLI::Range(16, 512))->capture_default_str();
  attention.add_option("--page-size", f.attention.page_size)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  attention.add_option("--kv-cache-dtype", f.attention.kv_cache_dtype)->capture_default_str();
  suggest(attention.add_option("--kv-layout", f.attention.kv_layout), {"nhd", "hnd", "x_packed", "shuffle"})
      ->capture_default_str();
  attention.add_option("--threads", f.attention.threads)->check(CLI::Range(1, 1024));
  attention.add_flag("--json", f.attention.json);
  auto& linear = *bench.add_subcommand("linear", "Linear layers against the read bandwidth and the FMA peak");
  start_group(linear, "Benchmark");
  linear.add_option("--rows", f.linear.rows, "Rows M")->check(CLI::Range(1, 65536))->capture_default_str();
  linear.add_option("--dtype", f.linear.dtype, "Of the weights")->capture_default_str();
  linear.add_option("--threads", f.linear.threads)->check(CLI::Range(1, 1024));
  linear.add_flag("--json", f.linear.json);
  auto& machine = *bench.add_subcommand("machine", "FMA rates, and the read bandwidth of each memory level");
  start_group(machine, "Benchmark");
  machine.add_option("--threads", f.machine.threads)->check(CLI::Range(1, 1024));
  machine.add_flag("--json", f.machine.json);
  add_bench_serve(bench, f.serve);
}

}  // namespace fovea::cli
