#include "cli/options.h"

#include <unistd.h>

#include <climits>
#include <cstdio>
#include <filesystem>

#include "base/dtype_names.h"
#include "base/same_name.h"
#include "cli/tuning.h"

namespace fovea::cli {

namespace fs = std::filesystem;

Result<std::string> demo_model_dir() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0 || length == sizeof path)
    return io_error("cannot find the demo model: /proc/self/exe is not readable; give --model DIR");
  std::error_code ignored;
  fs::path folder = fs::path(std::string(path, static_cast<size_t>(length))).parent_path();
  const fs::path program_folder = folder;
  const fs::path installed = folder.parent_path() / "share/fovea/models/demo";
  if (fs::exists(installed / "config.json", ignored)) return installed.string();
  for (int level = 0; level < 4; ++level, folder = folder.parent_path()) {
    const fs::path candidate = folder / "models/demo";
    if (fs::exists(candidate / "config.json", ignored)) return candidate.string();
  }
  return not_found("the demo model (models/demo) is not beside or above " + program_folder.string() +
                   "; give --model DIR, a folder in Hugging Face format");
}

Result<EngineDevice> read_device(const std::string& name) {
  auto device = find_device(name);
  if (!device) return Error{device.error().code, "--device " + name + ": " + device.error().message};
  return device;
}

Result<std::optional<DType>> read_dtype(const std::string& name) {
  if (same_name(name, "auto")) return std::optional<DType>();
  const auto dtype = parse_dtype(name);
  if (!dtype) return invalid("--dtype " + name + ": allowed are auto, float32, bfloat16, float16");
  return dtype;
}

Result<KvCacheDType> read_kv_cache_dtype(const std::string& name) {
  if (const auto dtype = parse_kv_cache_dtype(name)) return *dtype;
  if (same_name(name, "bf16")) return KvCacheDType::bfloat16;  // SGLang's short name
  for (const char* sglangs : {"mxfp8", "fp4_e2m1", "fp4_mx_block16"})
    if (same_name(name, sglangs))
      return unsupported("--kv-cache-dtype " + name +
                         ": known to SGLang, but not stored by this build; allowed are " +
                         stored_kv_cache_dtypes());
  return invalid("--kv-cache-dtype " + name + ": " + unknown_kv_cache_dtype(name));
}

Result<KvLayout> read_kv_layout(const std::string& name) {
  if (const auto layout = parse_kv_layout(name)) return *layout;
  return invalid("--kv-layout " + name + ": allowed are auto, nhd, hnd, x_packed, shuffle");
}

Result<SpeculativeConfig> read_speculative(const ModelFlags& flags) {
  if (flags.speculative_config.empty()) return speculative_from_sglang(flags.sglang_speculative);
  if (flags.sglang_speculative.given())
    return invalid(
        "--speculative-config is given together with other --speculative-* flags; give one of the two "
        "families");
  if (same_name(flags.speculative_config, "none") || same_name(flags.speculative_config, "null"))
    return SpeculativeConfig();
  return speculative_from_json(flags.speculative_config);
}

Result<EngineConfig> engine_config(const ModelFlags& flags) {
  EngineConfig config;
  if (flags.model.empty()) {
    FOVEA_TRY(demo, demo_model_dir());
    config.model = demo;
  } else {
    config.model = flags.model;
  }
  FOVEA_TRY(device, read_device(flags.device));
  config.device = device.info;
  config.device_index = device.index;
  FOVEA_TRY(dtype, read_dtype(flags.dtype));
  config.dtype = dtype;
  FOVEA_TRY(kv_dtype, read_kv_cache_dtype(flags.kv_cache_dtype));
  config.kv_cache_dtype = kv_dtype;
  FOVEA_TRY(kv_layout, read_kv_layout(flags.kv_layout));
  config.kv_layout = kv_layout;
  const auto policy = parse_scheduling_policy(flags.scheduling_policy);
  if (!policy)
    return invalid("--scheduling-policy " + flags.scheduling_policy + ": allowed are fcfs, priority");
  config.scheduling_policy = *policy;
  FOVEA_TRY(speculative, read_speculative(flags));
  config.speculative = speculative;
  config.attention = flags.attention;
  config.registry = flags.registry;
  config.max_running_requests = flags.max_running_requests;
  config.max_batched_tokens = flags.max_batched_tokens;
  config.max_seq_len = flags.max_seq_len;
  config.num_pages = flags.num_pages;
  config.memory_share = flags.memory_share;
  config.gpu_memory_utilization = flags.gpu_memory_utilization;
  config.overlap = !flags.no_overlap;
  config.cuda_graphs = !flags.no_cuda_graph;
  config.cuda_graph_max_bs = flags.cuda_graph_max_bs;
  config.cuda_graph_bs = flags.cuda_graph_bs;
  config.prefix_cache = !flags.no_prefix_cache;
  config.threads = flags.threads;
  config.seed = flags.seed;
  config.dummy_weights = flags.dummy_weights;
  config.generation_config = flags.generation_config;
  config.max_logprobs = flags.max_logprobs;
  config.lora = flags.lora;
  config.lora.enabled = flags.enable_lora;
  for (const std::string& text : flags.lora_modules) {
    FOVEA_TRY(module, read_lora_module(text));
    config.lora.modules.push_back(std::move(module));
  }
  config.chat_template = flags.chat_template;
  config.chat_template_name = flags.chat_template_name;
  config.report = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  return config;
}

Result<std::unique_ptr<Engine>> make_engine(const ModelFlags& flags) {
  FOVEA_TRY(config, engine_config(flags));
  use_tuning(flags, config);
  return Engine::create(config);
}

SamplingParams merge_sampling(SamplingParams params, const SamplingFlags& flags) {
  const auto take = [](auto& value, const auto& given) {
    // Some of these values are optional themselves.
    if (given) value = *given;  // NOLINT(bugprone-optional-value-conversion)
  };
  take(params.temperature, flags.temperature);
  take(params.top_p, flags.top_p);
  take(params.min_p, flags.min_p);
  take(params.top_k, flags.top_k);
  take(params.repetition_penalty, flags.repetition_penalty);
  take(params.frequency_penalty, flags.frequency_penalty);
  take(params.presence_penalty, flags.presence_penalty);
  take(params.max_tokens, flags.max_tokens);
  take(params.min_tokens, flags.min_tokens);
  take(params.n, flags.n);
  take(params.seed, flags.seed);
  take(params.logprobs, flags.logprobs);
  take(params.stop, flags.stop);
  take(params.bad_words, flags.bad_words);
  take(params.stop_token_ids, flags.stop_token_ids);
  take(params.allowed_token_ids, flags.allowed_token_ids);
  take(params.logit_bias, flags.logit_bias);
  take(params.ignore_eos, flags.ignore_eos);
  take(params.skip_special_tokens, flags.skip_special_tokens);
  take(params.include_stop_str_in_output, flags.include_stop_str_in_output);
  if (flags.constraint) params.constraint = flags.constraint;
  return params;
}

}  // namespace fovea::cli
