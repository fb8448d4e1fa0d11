// Flags of every command that loads a model.
#include <charconv>
#include <cstdint>

#include "cli/flags.h"

namespace fovea::cli {

/// CLI11 clamps an out-of-range value to the largest number.
std::string check_uint64(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return {};
  return "Value " + text + " is not an integer from 0 to " + std::to_string(UINT64_MAX);
}

void add_backend_library(CLI::App& app, std::vector<std::string>& files) {
  takes_file(
      app.add_option(
          "--backend-library", files,
          "A shared library with an attention backend, selectable like the built-in ones (repeatable)"))
      ->allow_extra_args(false);
}

void add_attention_flags(CLI::App& app, ModelFlags& f) {
  start_group(app, "Attention");
  add_backend_library(app, f.backend_libraries);
  takes_backend(app.add_option(
      "--attention-backend,--attn", f.attention.backend,
      "Backend by name, \"auto\", a pair \"prefill,decode\", or \"prefill=A,decode=B,swa=C\" by "
      "phase and kind of layers (default: auto)"));
  takes_backend(app.add_option("--prefill-attention-backend", f.attention.prefill_backend,
                               "Backend of the prefill phase"));
  takes_backend(app.add_option("--decode-attention-backend", f.attention.decode_backend,
                               "Backend of the decode phase"));
  // read_launch_line() consumes all its forms before CLI11 parses; declared here for --help.
  app.add_option_function<std::string>(
      "--attention-config", [](const std::string&) {},
      "Also -ac: a JSON object of keys, or one key as -ac.KEY VALUE (backend, backend_per_kind, "
      "flash_attn_version, ...)");
  // A callback: CLI11 would set a std::optional to false when the flag is not given.
  app.add_flag_callback(
      "--batch-invariant", [&f] { f.attention.batch_invariant = true; },
      "Refuse backends whose results depend on the batch");
}

namespace {

void add_speculative_flags(CLI::App& app, ModelFlags& f) {
  start_group(app, "Speculative decoding");
  app.add_option(
      "--speculative-config", f.speculative_config,
      R"(JSON with vLLM's keys: {"method":"ngram","num_speculative_tokens":5}; also suffix, draft_model, eagle, eagle3, mtp)");
  SglangSpeculative& s = f.sglang_speculative;
  suggest(
      app.add_option("--speculative-algorithm,--speculative-algo", s.algorithm,
                     "Instead, as SGLang has it: NGRAM, STANDALONE (a draft model), EAGLE, EAGLE3 or NEXTN"),
      {"NGRAM", "STANDALONE", "EAGLE", "EAGLE3", "NEXTN", "none"});
  takes_folder(app.add_option("--speculative-draft-model-path,--speculative-draft-model", s.draft_model_path,
                              "The draft model, with the tokens of the model, or the draft head"));
  app.add_option("--speculative-num-draft-tokens", s.num_draft_tokens,
                 "Tokens of a step, one more than drafts (default: 4)");
  app.add_option("--speculative-num-steps", s.num_steps, "Drafts of a step (default: 3)");
  app.add_option("--speculative-eagle-topk", s.eagle_topk, "1: drafts are a chain");
  app.add_option("--speculative-ngram-min-match-window-size", s.ngram_min_match_window_size,
                 "Fewest tokens that are looked up (default: 1)");
  app.add_option("--speculative-ngram-max-match-window-size", s.ngram_max_match_window_size,
                 "Most tokens that are looked up (default: 12)");
  app.add_option("--speculative-accept-threshold-single", s.accept_threshold_single,
                 "1: a draft is accepted if the model samples it");
  app.add_option("--speculative-accept-threshold-acc", s.accept_threshold_acc, "1, likewise");
  suggest(app.add_option("--speculative-attention-mode", s.attention_mode,
                         "Backend that verifies: decode, or prefill where it has the same bits (default: "
                         "decode)"),
          {"decode", "prefill"});
  takes_backend(app.add_option("--speculative-draft-attention-backend", s.draft_attention_backend,
                               "Backend of the draft model or head"));
}

}  // namespace

void add_model_flags(CLI::App& app, ModelFlags& f, const std::string& model_names) {
  start_group(app, "Model");
  takes_folder(app.add_option(
      model_names, f.model,
      "Folder in Hugging Face format, or a hub id found in the local cache (default: the demo model)"));
  add_dtype(app, f, "Of the weights, and of the KV cache on auto");
  if (app.get_option_no_throw("--device") == nullptr) add_device(app, f);  // explain has its own
  app.add_option("--threads", f.threads,
                 "Threads (default: one per usable CPU, as the affinity mask and the cgroup's quota allow)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--seed", f.seed, "Seed of sampling and of dummy weights")
      ->check(check_uint64)
      ->capture_default_str();
  app.add_flag("--dummy-weights", f.dummy_weights, "Random weights from config.json alone");
  add_attention_flags(app, f);
  start_group(app, "KV cache");
  app.add_option("--page-size,--block-size", f.attention.page_size,
                 "Tokens of a KV page: a constraint on backends (default: the backend's preferred)");
  app.add_flag("--allow-page-override", f.attention.allow_page_override,
               "A backend that can't take the page size may change it, which is reported");
  suggest(
      app.add_option("--kv-cache-dtype", f.kv_cache_dtype, "fp8 is fp8_e4m3 (default: auto, the model's)"),
      {"auto", "float32", "float16", "bfloat16", "fp8", "fp8_e5m2", "int8_per_token_head"});
  suggest(app.add_option("--kv-layout", f.kv_layout, "Of KV pages (default: auto, hnd)"),
          {"auto", "nhd", "hnd", "x_packed", "shuffle"});
  app.add_option("--num-pages,--num-gpu-blocks-override", f.num_pages,
                 "Pages of the KV cache (default: by memory)")
      ->check(CLI::PositiveNumber);
  app.add_option("--memory-share,--mem-fraction-static", f.memory_share,
                 "On the CPU: share of the free memory that the KV cache may take")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  app.add_option("--gpu-memory-utilization", f.gpu_memory_utilization,
                 "On a GPU: share of its memory that all programs may take, this KV cache included")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  app.add_flag("--disable-radix-cache,--no-enable-prefix-caching", f.no_prefix_cache, "Reuse no prefixes");
  start_group(app, "Scheduling");
  app.add_option("--max-running-requests,--max-num-seqs", f.max_running_requests,
                 "Sequences that run together (default: 64, on a GPU 256)")
      ->check(CLI::Range(1, 65536));
  app.add_option("--max-num-batched-tokens,--chunked-prefill-size", f.max_batched_tokens,
                 "Tokens of one step (default: 512, on a GPU 8192)")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--max-seq-len-override,--max-model-len,--context-length", f.max_seq_len,
                 "Longest sequence in tokens (default: the model's)")
      ->check(CLI::Range(1, 1 << 30));
  suggest(app.add_option(
              "--scheduling-policy", f.scheduling_policy,
              "Scheduling order: fcfs (arrival order) or priority (lowest \"priority\" of the rows first)"),
          {"fcfs", "priority"})
      ->capture_default_str();
  app.add_flag("--disable-overlap-schedule", f.no_overlap,
               "On a GPU: queue a step only when the one before has ended (same bits)");
  add_speculative_flags(app, f);
  start_group(app, "CUDA graphs");
  app.add_flag("--disable-cuda-graph", f.no_cuda_graph, "Run decode steps without graphs (same bits)");
  app.add_option("--cuda-graph-max-bs", f.cuda_graph_max_bs, "Requests of the largest graph (default: 256)")
      ->check(CLI::Range(1, 65536));
  app.add_option("--cuda-graph-bs", f.cuda_graph_bs,
                 "Requests of each graph (default: 1, 2, 4, 8, 16, 24, 32, ...)")
      ->check(CLI::Range(1, 65536))
      ->delimiter(',');
}

void add_dtype(CLI::App& app, ModelFlags& f, const std::string& text) {
  suggest(app.add_option("--dtype", f.dtype, text + " (default: auto, the checkpoint's)"),
          {"auto", "float32", "bfloat16", "float16"});
}

void add_device(CLI::App& app, ModelFlags& f) {
  suggest(
      app.add_option("--device", f.device,
                     "Where the model runs: auto, cpu, cuda or cuda:N (default: auto, the GPU if there is "
                     "one)"),
      {"auto", "cpu", "cuda"});
}

void add_profile_flags(CLI::App& app, ModelFlags& f) {
  start_group(app, "Profile and tuning");
  takes_file(app.add_option("--profile", f.profile,
                            "A trace of what threads and the GPU do, for ui.perfetto.dev: the newest million "
                            "ranges and kernels"));
  add_tune_file(app, f);
}

void add_json_flag(CLI::App& app, ModelFlags& f) {
  app.add_flag("--json", f.json, "Results as JSON");
}

}  // namespace fovea::cli
