#pragma once
// The values of all flags: main.cc fills these structs, the commands read them.
#include <optional>
#include <string>
#include <vector>

#include "cli/bench_serve.h"
#include "cli/output_file.h"
#include "compat/launch/environment.h"
#include "compat/launch/launch_line.h"
#include "fovea/engine.h"
#include "speculative/launch.h"

namespace fovea::cli {

/// Flags of every command that loads a model.
struct ModelFlags {
  std::string model;            ///< empty = the demo model
  std::string device = "auto";  ///< not used by explain
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  std::string kv_layout = "auto";
  AttentionConfig attention;
  std::vector<std::string> backend_libraries;  ///< main.cc loads them into `registry`
  const BackendRegistry* registry = nullptr;   ///< backends to choose from; null = builtin_backends()
  std::optional<int> max_running_requests, max_batched_tokens;
  std::optional<int> max_seq_len;
  std::optional<int64_t> num_pages;
  double memory_share = 0.5, gpu_memory_utilization = 0.9;
  bool no_overlap = false, no_cuda_graph = false;
  std::optional<int> cuda_graph_max_bs;
  std::vector<int> cuda_graph_bs;
  int threads = 0;
  uint64_t seed = 0;
  bool no_prefix_cache = false;
  std::string scheduling_policy = "fcfs";
  std::string speculative_config;  ///< vLLM's JSON; empty = not given
  SglangSpeculative sglang_speculative;
  bool dummy_weights = false;
  std::string generation_config = "auto";
  int max_logprobs = 20;
  bool json = false;
  std::string profile;    ///< a file
  std::string tune_file;  ///< empty = the usual one; "none"
  std::string chat_template, chat_template_name;
  bool enable_lora = false;
  std::vector<std::string> lora_modules;     ///< NAME=PATH, a path, or vLLM's JSON
  LoraConfig lora;                           ///< its limits; engine_config() adds the two above
  std::vector<FlagNote> notes;               ///< on other engines' flags and on deprecated flags
  std::vector<EnvironmentNote> environment;  ///< variables about attention
};

/// Inputs of a chat template other than the messages.
struct TemplateFlags {
  std::string tools, documents;  ///< JSON files
  std::string kwargs;            ///< JSON
};

/// Sampling settings of the flags or of a row; nullopt = unchanged.
struct SamplingFlags {
  std::optional<float> temperature, top_p, min_p;
  std::optional<float> repetition_penalty, frequency_penalty, presence_penalty;
  std::optional<int> top_k, max_tokens, min_tokens, n, logprobs, prompt_logprobs;
  std::optional<uint64_t> seed;
  std::optional<std::vector<std::string>> stop, bad_words;
  std::optional<std::vector<int32_t>> stop_token_ids, allowed_token_ids;
  std::optional<std::vector<LogitBias>> logit_bias;
  std::optional<bool> ignore_eos, skip_special_tokens, include_stop_str_in_output;
  std::shared_ptr<const OutputConstraint> constraint;
};

struct GenerateFlags {
  ModelFlags model;
  SamplingFlags sampling;
  std::vector<std::string> prompts;
  std::string prompt_file, input, system, decoder_prompt;
  OutputFlags output;
  std::vector<std::string> audio;
  TemplateFlags chat_template;
  std::string lora;  ///< adapter of rows that name none
  bool chat = false, ignore_unknown = false;
  bool stats = false;  ///< print engine statistics to standard error at the end
};

struct ChatFlags {
  ModelFlags model;
  SamplingFlags sampling;
  TemplateFlags chat_template;
  std::string system, messages;
  bool print_prompt = false, no_generation_prompt = false, continue_final_message = false;
  bool no_history = false;
};

struct ScoreFlags {
  ModelFlags model;
  std::string input;
  OutputFlags output;
  std::optional<int> prompt_logprobs;
  bool last_logits = false, ignore_unknown = false;
};

struct EmbedFlags {
  ModelFlags model;  ///< flags of the KV cache are not used
  std::vector<std::string> texts;
  std::string input, pooling;
  OutputFlags output;
  std::optional<bool> normalize;
  bool truncate = false, ignore_unknown = false;
};

struct ServeFlags {
  ModelFlags model;
  std::string host = "127.0.0.1", uds;
  int port = 8000, io_threads = 1;
  std::vector<std::string> api_keys, served_names, allowed_origins, allowed_hosts;
  int max_queued_requests = 1024;
  int64_t max_queued_tokens = 0;
  double shutdown_timeout = 30, sse_keepalive = 15;  ///< seconds
  double request_timeout = 0, queue_timeout = 0;     ///< seconds; 0 = none
  int64_t max_answer_bytes = int64_t{64} << 20;
  int64_t max_body_bytes = int64_t{32} << 20, max_header_bytes = 16 << 10;
  int max_connections = 8192, max_connections_per_address = 0;  ///< per address: 0 = half of max_connections
  double header_timeout = 10, body_timeout = 30, keep_alive_timeout = 60, write_timeout = 60;  ///< seconds
  bool no_playground = false, ignore_unknown_fields = false;
  std::string tool_call_parser = "auto", reasoning_parser = "auto", template_kwargs;
  std::string draft_metrics = "none";
  bool allow_lora_updating = false;
};

struct ExplainFlags {
  ModelFlags model;    ///< only flags about attention are used
  std::string device;  ///< empty = this machine's device
};

struct TuneFlags {
  ModelFlags model;  ///< flags of the model and the device
  int max_rows = 8192;
};

struct BenchModelFlags {
  ModelFlags model;
  int prompt_tokens = 512;
  int new_tokens = 64;
  int batch = 1;
  std::string steps, svg;  ///< files
};

struct BenchAttentionFlags {
  std::string phase = "both";
  int threads = 0;
  int seq_len = 0;  ///< 0 = 2048 for prefill, 16384 for decode
  int batch = 0;    ///< 0 = 1 for prefill, 8 for decode
  int num_heads = 32, num_kv_heads = 8, head_dim = 128, page_size = 16;
  std::string kv_cache_dtype = "bfloat16";
  std::string kv_layout = "hnd";
  int mla_heads = 0;  ///< of CPU_MLA, which is measured in place of CPU_ATTN; 0 = CPU_ATTN
  bool json = false;
};

struct BenchLinearFlags {
  std::vector<int> rows = {1, 8, 512};
  std::string dtype = "bfloat16";
  int threads = 0;
  bool json = false;
};

struct BenchMachineFlags {
  int threads = 0;
  bool json = false;
};

struct BenchFlags {
  BenchModelFlags model;
  BenchAttentionFlags attention;
  BenchLinearFlags linear;
  BenchMachineFlags machine;
  BenchServeFlags serve;
};

/// Copies the attention settings of `line` and the environment into `flags`, with the spelling of each.
Status take_settings(LaunchLine line, const std::vector<std::string>& environment, ModelFlags& flags);
/// For a command that runs a model: warns about settings without effect, and reports all settings that are
/// not built in one error.
Status check_settings(const ModelFlags& flags);

/// Parse the values of --kv-cache-dtype and --kv-layout; errors list the allowed names.
Result<KvCacheDType> read_kv_cache_dtype(const std::string& name);
Result<KvLayout> read_kv_layout(const std::string& name);

/// Parses the value of --device: "auto", "cpu", "cuda", "cuda:N".
Result<EngineDevice> read_device(const std::string& name);
/// Parses the value of --dtype; nullopt = auto.
Result<std::optional<DType>> read_dtype(const std::string& name);

/// Of either family of flags; an error if both are given.
Result<SpeculativeConfig> read_speculative(const ModelFlags& flags);

/// Parses a value of --lora-modules: NAME=PATH, a path (also the name), or JSON with "name" and "path".
Result<LoraModule> read_lora_module(const std::string& text);

/// Checks the type names and locates the demo model.
Result<EngineConfig> engine_config(const ModelFlags& flags);
Result<std::unique_ptr<Engine>> make_engine(const ModelFlags& flags);

/// `params` overridden by `flags`; the caller handles flags about the prompt (prompt_logprobs).
SamplingParams merge_sampling(SamplingParams params, const SamplingFlags& flags);

/// models/demo beside the program, above it (a build tree) or under its prefix's share/fovea.
Result<std::string> demo_model_dir();

Status run_generate(const GenerateFlags& flags);
Status run_chat(const ChatFlags& flags);
Status run_score(const ScoreFlags& flags);
Status run_embed(const EmbedFlags& flags);
Status run_serve(const ServeFlags& flags);
Status run_explain(const ExplainFlags& flags);
Status run_tune(const TuneFlags& flags);
Status run_bench_model(const BenchModelFlags& flags);
Status run_bench_attention(const BenchAttentionFlags& flags);
Status run_bench_linear(const BenchLinearFlags& flags);
Status run_bench_machine(const BenchMachineFlags& flags);

}  // namespace fovea::cli
