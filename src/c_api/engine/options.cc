#include "c_api/engine/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "base/dtype_names.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/same_name.h"
#include "c_api/engine/members.h"
#include "compat/launch/attention_keys.h"
#include "compat/launch/environment.h"
#include "speculative/launch.h"

namespace fovea::c_api {
namespace {

constexpr int64_t kMaxCount = 1 << 30;

/// Sets `out` from a name, with `parse` and the error's list of names.
template <class T, class Parse>
void read_name(Members& members, const char* key, T& out, std::string_view allowed, const Parse& parse) {
  std::string name;
  members.read(key, name);
  if (name.empty()) return;
  const auto value = parse(name);
  if (!value) return members.refuse(key, allowed);
  const auto& given = *value;
  out = given;
}

void set_device(EngineConfig& config, const EngineDevice& device) {
  config.device = device.info;
  config.device_index = device.index;
}

void set_device(EmbedConfig& config, const EngineDevice& device) {
  config.device = device.info;
  config.device_index = device.index;
}

template <class Config>
void read_device(Members& members, Config& config) {
  std::string name;
  members.read("device", name);
  if (auto device = find_device(name))
    set_device(config, *device);
  else
    members.fail(std::move(device).error());
}

void read_dtype(Members& members, std::optional<DType>& out) {
  std::string name;
  members.read("dtype", name);
  if (name.empty() || same_name(name, "auto")) return;
  out = parse_dtype(name);
  if (!out) members.refuse("dtype", "auto, float32, bfloat16 or float16");
}

/// Where a setting came from, for reports of the selection.
void note_source(Members& members, AttentionConfig& config, const char* key, const char* of_config) {
  if (members.find(key) != nullptr) config.sources.emplace(of_config, key);
}

void read_attention(Members& members, AttentionConfig& config) {
  const auto name = [&](const char* key, const char* of_config, BackendName& out) {
    std::string text;
    members.read(key, text);
    if (!text.empty()) out = text;
    note_source(members, config, key, of_config);
  };
  name("attention_backend", "backend", config.backend);
  name("prefill_attention_backend", "prefill_backend", config.prefill_backend);
  name("decode_attention_backend", "decode_backend", config.decode_backend);
  members.read("page_size", config.page_size, 1, 1 << 20);
  note_source(members, config, "page_size", "page_size");
  members.read("allow_page_override", config.allow_page_override);
  note_source(members, config, "allow_page_override", "allow_page_override");
  members.read("batch_invariant", config.batch_invariant);
  note_source(members, config, "batch_invariant", "batch_invariant");
  note_source(members, config, "kv_cache_dtype", "kv_cache_dtype");
  note_source(members, config, "kv_layout", "kv_layout");
  note_source(members, config, "dtype", "dtype");
  if (const nlohmann::json* given = members.find("attention_config")) {
    if (!given->is_object()) return members.refuse("attention_config", "an object");
    std::vector<FlagNote> notes;
    const AttentionArgument argument{"attention_config", "",
                                     given->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
    Status status = apply_attention_arguments({argument}, config, notes);
    if (status) status = check_refused(notes);
    if (!status) return members.fail(std::move(status).error());
  }
  auto variables = fovea::apply_environment(process_environment(), config);
  if (!variables) return members.fail(std::move(variables).error());
  for (const EnvironmentNote& note : *variables)
    if (!note.applied) {
      FOVEA_LOG(warning) << "environment variable " << note.name << "=" << note.value << ": " << note.text;
    }
}

/// What engines and embedders have in common.
template <class Config>
void read_common(Members& members, Config& config) {
  members.read("model", config.model);
  if (config.model.empty())
    members.fail(invalid("model is missing; give a folder in Hugging Face format, or a hub id"));
  read_device(members, config);
  read_dtype(members, config.dtype);
  read_attention(members, config.attention);
  members.read_strings("backend_library", config.backend_libraries, false);
  members.read("max_model_len", config.max_seq_len, 1, kMaxCount);
  members.read("max_num_batched_tokens", config.max_batched_tokens, 1, 1 << 20);
  members.read("threads", config.threads, 0, 1024);
  members.read_seed("seed", config.seed);
  members.read("dummy_weights", config.dummy_weights);
}

/// vLLM's object, or its text.
void read_speculative(Members& members, SpeculativeConfig& out) {
  const nlohmann::json* given = members.find("speculative_config");
  if (given == nullptr) return;
  if (!given->is_object() && !given->is_string())
    return members.refuse("speculative_config",
                          R"(an object, as {"method": "ngram", "num_speculative_tokens": 5})");
  auto config = speculative_from_json(
      given->is_string() ? given->get<std::string>()
                         : given->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  if (!config) return members.fail(std::move(config).error());
  out = *std::move(config);
}

void read_bias(Members& members, std::vector<LogitBias>& out) {
  constexpr const char* kAllowed = R"(an object of token ids and numbers from -100 to 100, as {"13": -100})";
  const nlohmann::json* value = members.find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object()) return members.refuse("logit_bias", kAllowed);
  out.clear();
  for (const auto& [key, bias] : value->items()) {
    LogitBias one;
    const char* const end = key.data() + key.size();
    const auto got = std::from_chars(key.data(), end, one.token_id);
    // The engine checks the range; a double that no float holds must not be cast.
    if (got.ec != std::errc() || got.ptr != end || !bias.is_number() || std::abs(bias.get<double>()) > 1e6)
      return members.fail(
          invalid("logit_bias has \"" + printable(key) +
                  "\": " + printable(bias.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) +
                  "; it must be " + kAllowed));
    one.bias = bias.get<float>();
    out.push_back(one);
  }
}

void read_lora(Members& members, LoraConfig& out) {
  members.read("enable_lora", out.enabled);
  members.read("max_lora_rank", out.max_rank, 1, kMaxLoraRank);
  members.read("max_loras", out.max_loras, 1, 65536);
  members.read("max_cpu_loras", out.max_loaded, 1, 65536);
  const nlohmann::json* modules = members.find("lora_modules");
  if (modules == nullptr) return;
  constexpr const char* kAllowed = R"(an object of names and paths, as {"sql": "/data/sql-lora"})";
  if (!modules->is_object()) return members.refuse("lora_modules", kAllowed);
  for (const auto& [name, path] : modules->items()) {
    if (!path.is_string()) return members.refuse("lora_modules", kAllowed);
    out.modules.push_back({name, path.get<std::string>()});
  }
}

}  // namespace

Result<EngineConfig> engine_options(const char* text) {
  FOVEA_TRY(members, Members::parse(text, "options"));
  EngineConfig config;
  read_common(members, config);
  read_name(members, "kv_cache_dtype", config.kv_cache_dtype, stored_kv_cache_dtypes(),
            [](const std::string& name) { return parse_kv_cache_dtype(name); });
  read_name(members, "kv_layout", config.kv_layout, "auto, nhd, hnd, x_packed or shuffle",
            [](const std::string& name) { return parse_kv_layout(name); });
  read_name(members, "scheduling_policy", config.scheduling_policy, "fcfs or priority",
            [](const std::string& name) { return parse_scheduling_policy(name); });
  members.read("max_num_seqs", config.max_running_requests, 1, 65536);
  members.read("num_pages", config.num_pages, 1, INT64_MAX);
  members.read("memory_share", config.memory_share, 0.01, 1);
  members.read("gpu_memory_utilization", config.gpu_memory_utilization, 0.01, 1);
  bool no_overlap = false, no_graphs = false;
  members.read("disable_overlap_schedule", no_overlap);
  members.read("disable_cuda_graph", no_graphs);
  config.overlap = !no_overlap;
  config.cuda_graphs = !no_graphs;
  members.read("cuda_graph_max_bs", config.cuda_graph_max_bs, 1, 65536);
  (void)members.read_ids("cuda_graph_bs", config.cuda_graph_bs);
  members.read("enable_prefix_caching", config.prefix_cache);
  members.read("generation_config", config.generation_config);
  members.read("max_logprobs", config.max_logprobs, -1, kMaxCount);
  read_speculative(members, config.speculative);
  members.read("chat_template", config.chat_template);
  members.read("chat_template_name", config.chat_template_name);
  read_lora(members, config.lora);
  FOVEA_RETURN_IF_ERROR(members.close());
  return config;
}

Result<EmbedConfig> embed_options(const char* text) {
  FOVEA_TRY(members, Members::parse(text, "options"));
  EmbedConfig config;
  read_common(members, config);
  read_name(members, "pooling", config.pooling, "mean, cls (the first token) or last",
            [](const std::string& name) { return parse_pooling(name); });
  members.read("normalize", config.normalize);
  FOVEA_RETURN_IF_ERROR(members.close());
  return config;
}

Result<SamplingParams> sampling_of(const char* text, const SamplingParams& defaults,
                                   std::optional<int>* prompt_logprobs) {
  FOVEA_TRY(members, Members::parse(text, "sampling"));
  SamplingParams out = defaults;
  if (members.is_null("allowed_token_ids")) out.allowed_token_ids.reset();
  if (members.is_null("seed")) out.seed.reset();
  if (members.is_null("max_tokens")) out.max_tokens.reset();
  if (members.is_null("logprobs")) out.logprobs.reset();
  members.read("temperature", out.temperature);
  members.read("top_p", out.top_p);
  members.read("top_k", out.top_k, INT32_MIN, INT32_MAX);
  members.read("min_p", out.min_p);
  members.read("repetition_penalty", out.repetition_penalty);
  members.read("frequency_penalty", out.frequency_penalty);
  members.read("presence_penalty", out.presence_penalty);
  read_bias(members, out.logit_bias);
  if (std::vector<int32_t> allowed; members.read_ids("allowed_token_ids", allowed))
    out.allowed_token_ids = std::move(allowed);
  members.read_strings("bad_words", out.bad_words, false);
  uint64_t seed = 0;
  members.read_seed("seed", seed);
  if (members.find("seed") != nullptr) out.seed = seed;
  members.read("n", out.n, INT32_MIN, INT32_MAX);
  members.read("max_tokens", out.max_tokens, INT32_MIN, INT32_MAX);
  members.read("min_tokens", out.min_tokens, INT32_MIN, INT32_MAX);
  members.read_strings("stop", out.stop, true);
  members.read_ids("stop_token_ids", out.stop_token_ids);
  members.read("ignore_eos", out.ignore_eos);
  members.read("skip_special_tokens", out.skip_special_tokens);
  members.read("include_stop_str_in_output", out.include_stop_str_in_output);
  members.read("logprobs", out.logprobs, INT32_MIN, INT32_MAX);
  std::optional<int> of_prompt;
  members.read("prompt_logprobs", of_prompt, INT32_MIN, INT32_MAX);
  FOVEA_RETURN_IF_ERROR(members.close());
  if (prompt_logprobs != nullptr) *prompt_logprobs = of_prompt;
  return out;
}

}  // namespace fovea::c_api
