#pragma once
// config.json (transformers v4 and v5 styles) and generation_config.json, checked and in one shape.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/dtype.h"
#include "fovea/result.h"

namespace fovea {

enum class RopeScaling { none, linear, llama3 };

struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position = 8192;
};

struct ModelConfig {
  std::string architecture;  ///< "LlamaForCausalLM", ...
  std::string model_type;
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int64_t max_position = 0;
  float rms_norm_eps = 1e-6f;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  ///< RMSNorm over each head of Q and K before RoPE (Qwen3)
  DType dtype = DType::f32;
  RopeConfig rope;
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  ///< union of config.json and generation_config.json

  /// generation_config.json's sampling defaults, where given.
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k, max_new_tokens;
  std::optional<bool> do_sample;
};

/// Reads DIR/config.json and the generation config: "auto" = DIR/generation_config.json if it is there,
/// "vllm" or "none" = none, else a folder that has one, or the file. Unknown architectures, missing keys and
/// numbers out of range are errors that name the file, the key, the value and what is allowed.
Result<ModelConfig> load_model_config(const std::string& dir, const std::string& generation_config = "auto");

/// The same from the files' text; `generation` is empty when there is none. `dir` and `generation_file` ("" =
/// in `dir`) are for messages.
Result<ModelConfig> parse_model_config(std::string_view config, std::string_view generation,
                                       const std::string& dir, const std::string& generation_file = "");

/// A directory as it is, or a hub id ("Qwen/Qwen3-0.6B") looked up in the local Hugging Face cache
/// (HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub: the first that is
/// set). Nothing is downloaded; the error says how to get the files.
Result<std::string> resolve_model_dir(const std::string& name_or_path);

}  // namespace fovea
