#include "c_api/engine/options.h"

#include <gmock/gmock.h>

namespace fovea::c_api {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string engine_error(const char* text) {
  const auto config = engine_options(text);
  return config ? "accepted" : config.error().message;
}

std::string sampling_error(const char* text) {
  const auto params = sampling_of(text, {}, nullptr);
  return params ? "accepted" : params.error().message;
}

TEST(EngineOptions, AllOfThem) {
  const auto config = engine_options(R"({
    "model": "m", "device": "cpu", "dtype": "float32", "kv_cache_dtype": "fp8_e5m2", "kv_layout": "nhd",
    "page_size": 32, "num_pages": 7, "memory_share": 0.25, "allow_page_override": true,
    "attention_backend": "CPU_ATTN", "batch_invariant": true, "backend_library": ["a.so"],
    "attention_config": {"backend_per_kind": {"swa": "TORCH_NATIVE"}, "page_size": null},
    "max_num_seqs": 3, "max_num_batched_tokens": 99, "max_model_len": 1000, "enable_prefix_caching": false,
    "gpu_memory_utilization": 0.5, "disable_overlap_schedule": true, "disable_cuda_graph": true,
    "cuda_graph_max_bs": 17, "cuda_graph_bs": [1, 17], "scheduling_policy": "priority", "threads": 2, "seed": 18446744073709551615, "dummy_weights": true,
    "speculative_config": {"method": "eagle3", "model": "h", "num_speculative_tokens": 3},
    "generation_config": "none", "max_logprobs": -1, "chat_template": "t", "chat_template_name": "n",
    "enable_lora": true, "lora_modules": {"a": "x", "b": "y"}, "max_lora_rank": 9, "max_loras": 2, "max_cpu_loras": 3})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_TRUE(config->lora.enabled);
  ASSERT_EQ(config->lora.modules.size(), 2u);
  EXPECT_EQ(config->lora.modules[1].name, "b");
  EXPECT_EQ(config->lora.modules[1].path, "y");
  EXPECT_EQ(config->lora.max_rank, 9);
  EXPECT_EQ(config->lora.max_loras, 2);
  EXPECT_EQ(config->lora.max_loaded, 3);
  EXPECT_EQ(config->model, "m");
  EXPECT_EQ(config->speculative.method, DraftMethod::eagle3);
  EXPECT_EQ(config->speculative.model, "h");
  EXPECT_EQ(config->speculative.num_tokens, 3);
  EXPECT_EQ(config->dtype, DType::f32);
  EXPECT_EQ(config->kv_cache_dtype, KvCacheDType::fp8_e5m2);
  EXPECT_EQ(config->kv_layout, KvLayout::nhd);
  EXPECT_EQ(config->attention.page_size, 32);
  EXPECT_EQ(config->attention.source("page_size"), "page_size");
  EXPECT_EQ(config->num_pages, 7);
  EXPECT_EQ(config->memory_share, 0.25);
  EXPECT_TRUE(config->attention.allow_page_override);
  EXPECT_EQ(config->attention.backend, "CPU_ATTN");
  EXPECT_EQ(config->attention.source("backend"), "attention_backend");
  EXPECT_EQ(config->attention.batch_invariant, true);
  EXPECT_EQ(config->attention.backend_per_kind.at(LayerKind::sliding_window), "TORCH_NATIVE");
  EXPECT_THAT(config->backend_libraries, ElementsAre("a.so"));
  EXPECT_EQ(config->max_running_requests, 3);
  EXPECT_EQ(config->max_batched_tokens, 99);
  EXPECT_EQ(config->max_seq_len, 1000);
  EXPECT_EQ(config->gpu_memory_utilization, 0.5);
  EXPECT_FALSE(config->overlap);
  EXPECT_FALSE(config->cuda_graphs);
  EXPECT_EQ(config->cuda_graph_max_bs, 17);
  EXPECT_THAT(config->cuda_graph_bs, ElementsAre(1, 17));
  EXPECT_FALSE(config->prefix_cache);
  EXPECT_EQ(config->scheduling_policy, SchedulingPolicy::priority);
  EXPECT_EQ(config->threads, 2);
  EXPECT_EQ(config->seed, UINT64_MAX);
  EXPECT_TRUE(config->dummy_weights);
  EXPECT_EQ(config->generation_config, "none");
  EXPECT_EQ(config->max_logprobs, -1);
  EXPECT_EQ(config->chat_template, "t");
  EXPECT_EQ(config->chat_template_name, "n");
}

TEST(EngineOptions, AbsentAndNullAreDefaults) {
  const EngineConfig defaults;
  for (const char* text :
       {R"({"model": "m"})", R"({"model": "m", "dtype": null, "max_num_seqs": null, "page_size": null,
                                 "attention_config": null, "enable_prefix_caching": null})"}) {
    const auto config = engine_options(text);
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->dtype, std::nullopt);
    EXPECT_EQ(config->max_running_requests, defaults.max_running_requests);
    EXPECT_EQ(config->max_batched_tokens, defaults.max_batched_tokens);
    EXPECT_TRUE(config->prefix_cache);
    EXPECT_TRUE(config->attention.sources.empty());
  }
}

TEST(EngineOptions, RefusalsNameKeyValueAndWhatIsAllowed) {
  EXPECT_THAT(engine_error(nullptr), HasSubstr("model is missing"));
  EXPECT_THAT(engine_error("{}"), HasSubstr("model is missing"));
  EXPECT_THAT(engine_error(""), HasSubstr("options: not valid JSON at byte"));
  EXPECT_THAT(engine_error("{\"model\": \"m\""), HasSubstr("not valid JSON"));
  EXPECT_THAT(engine_error("[1]"), HasSubstr("options is a list; it must be a JSON object"));
  EXPECT_THAT(engine_error(R"({"model": "a", "model": "b"})"), HasSubstr("model is given twice"));
  EXPECT_THAT(engine_error(R"({"model": "m", "max_num_seq": 1})"),
              AllOf(HasSubstr("unknown key \"max_num_seq\"; did you mean \"max_num_seqs\"?"),
                    HasSubstr("allowed are allow_page_override, attention_backend, "), Not(HasSubstr("\n"))));
  EXPECT_THAT(engine_error(R"({"model": "m", "pooling": "mean"})"), HasSubstr("unknown key \"pooling\""));
  EXPECT_THAT(engine_error(R"({"model": 3})"), HasSubstr("model is 3; it must be a string"));
  EXPECT_THAT(engine_error(R"({"model": "a\u0000b"})"), HasSubstr("a string without NUL"));
  EXPECT_THAT(engine_error(R"({"model": "m", "threads": 1e9})"), HasSubstr("threads is 1000000000.0"));
  EXPECT_THAT(engine_error(R"({"model": "m", "threads": 18446744073709551615})"), HasSubstr("0 to 1024"));
  EXPECT_THAT(engine_error(R"({"model": "m", "device": "cuda:"})"), HasSubstr("cuda:N"));
  EXPECT_THAT(engine_error(R"({"model": "m", "device": "cuda:-1"})"), HasSubstr("cuda:N"));
  EXPECT_THAT(engine_error(R"({"model": "m", "device": "cudaX"})"), HasSubstr("cuda:N"));
  EXPECT_THAT(engine_error(R"({"model": "m", "memory_share": 0})"), HasSubstr("a number from 0.01 to 1"));
  EXPECT_THAT(engine_error(R"({"model": "m", "attention_config": "FLASH_ATTN"})"), HasSubstr("an object"));
  EXPECT_THAT(engine_error(R"({"model": "m", "attention_config": {"no_key": 1}})"), HasSubstr("no_key"));
  EXPECT_THAT(
      engine_error(R"({"model": "m", "attention_backend": "A", "attention_config": {"backend": "B"}})"),
      HasSubstr("attention_backend"));
  EXPECT_THAT(engine_error(R"({"model": "m", "backend_library": "a.so"})"), HasSubstr("a list of strings"));
  EXPECT_THAT(engine_error(std::string(200, '[').c_str()), HasSubstr("nested deeper"));
  EXPECT_THAT(engine_error(R"({"model": 1e999})"), HasSubstr("out of range"));
}

TEST(EmbedOptions, ThoseOfGenerationAreUnknown) {
  const auto config = embed_options(R"({"model": "m", "pooling": "CLS", "normalize": false, "seed": -1})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->pooling, Pooling::cls);
  EXPECT_EQ(config->normalize, false);
  EXPECT_EQ(config->seed, UINT64_MAX);
  EXPECT_EQ(embed_options(R"({"model": "m"})")->normalize, std::nullopt);
  EXPECT_THAT(embed_options(R"({"model": "m", "max_num_seqs": 1})").error().message,
              HasSubstr("unknown key"));
  EXPECT_THAT(embed_options(R"({"model": "m", "pooling": "max"})").error().message, HasSubstr("mean, cls"));
}

TEST(Sampling, KeysOverrideTheModelsDefaults) {
  SamplingParams defaults;
  defaults.temperature = 0.6f;
  defaults.top_k = 20;
  defaults.max_tokens = 5;
  std::optional<int> prompt_logprobs;
  auto params = sampling_of(nullptr, defaults, &prompt_logprobs);
  ASSERT_TRUE(params.ok());
  EXPECT_EQ(params->temperature, 0.6f);
  EXPECT_EQ(prompt_logprobs, std::nullopt);
  params = sampling_of(R"({"temperature": 0, "max_tokens": null, "stop": "x", "stop_token_ids": [1, 2],
      "logit_bias": {"13": -1.5, "2": 3}, "allowed_token_ids": [7], "bad_words": ["a", "b"], "seed": -2,
      "n": 2, "min_tokens": 1, "ignore_eos": true, "logprobs": 0, "prompt_logprobs": 4, "top_p": 0.5})",
                       defaults, &prompt_logprobs);
  ASSERT_TRUE(params.ok()) << params.error().message;
  EXPECT_EQ(params->temperature, 0);
  EXPECT_EQ(params->top_k, 20);
  EXPECT_EQ(params->max_tokens, std::nullopt);
  EXPECT_THAT(params->stop, ElementsAre("x"));
  EXPECT_THAT(params->stop_token_ids, ElementsAre(1, 2));
  EXPECT_THAT(params->logit_bias, ::testing::UnorderedElementsAre(LogitBias{13, -1.5f}, LogitBias{2, 3.0f}));
  EXPECT_THAT(*params->allowed_token_ids, ElementsAre(7));
  EXPECT_EQ(params->seed, UINT64_MAX - 1);
  EXPECT_EQ(params->n, 2);
  EXPECT_EQ(params->logprobs, 0);
  EXPECT_EQ(prompt_logprobs, 4);
}

TEST(Sampling, Refusals) {
  EXPECT_THAT(sampling_error(R"({"temprature": 1})"), HasSubstr("did you mean \"temperature\"?"));
  EXPECT_THAT(sampling_error(R"({"temperature": "hot"})"),
              HasSubstr("temperature is \"hot\"; it must be a number"));
  EXPECT_THAT(sampling_error(R"({"temperature": 1e300})"), HasSubstr("32-bit float"));
  EXPECT_THAT(sampling_error(R"({"temperature": NaN})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(sampling_error(R"({"n": 1.5})"), HasSubstr("n is 1.5; it must be an integer"));
  EXPECT_THAT(sampling_error(R"({"seed": 1.5})"), HasSubstr("seed is 1.5"));
  EXPECT_THAT(sampling_error(R"({"stop": [1]})"), HasSubstr("stop is a list; it must be a string or a list"));
  EXPECT_THAT(sampling_error(R"({"stop_token_ids": [4294967296]})"), HasSubstr("a list of token ids"));
  EXPECT_THAT(sampling_error(R"({"logit_bias": {"x": 1}})"), HasSubstr("logit_bias has \"x\""));
  EXPECT_THAT(sampling_error(R"({"logit_bias": {"1": 1e30}})"), HasSubstr("logit_bias has \"1\""));
  EXPECT_THAT(sampling_error(R"({"logit_bias": [1]})"), HasSubstr("an object of token ids"));
  EXPECT_THAT(sampling_error(R"({"ignore_eos": 1})"), HasSubstr("true or false"));
  // Unknown before wrong would hide the first error.
  EXPECT_THAT(sampling_error(R"({"n": "x", "zzz": 1})"), HasSubstr("n is \"x\""));
}

}  // namespace
}  // namespace fovea::c_api
