#pragma once
// config.json (transformers v4 and v5 styles) and generation_config.json, validated and normalised.
#include <any>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/dtype.h"
#include "fovea/result_fwd.h"
#include "kernels/cpu/activation.h"
#include "model/quantization.h"
#include "ops/moe_router.h"

namespace fovea {

/// decoder: next-token logits; encoder: hidden states for pooling; encoder_decoder: next-token logits given
/// an encoder input.
enum class ModelKind : uint8_t { decoder, encoder, encoder_decoder };

enum class RopeScaling : uint8_t { none, linear, llama3, yarn, longrope };

/// Rotary position embedding of a set of layers.
struct RopeConfig {
  double theta = 10000.0;
  int rotary_dim = 0;        ///< number of leading elements of a head that rotate, even; 0 = all
  bool interleaved = false;  ///< pairs (2t, 2t + 1) instead of (t, t + rotary_dim / 2)
  RopeScaling scaling = RopeScaling::none;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  ///< llama3
  int64_t original_max_position = 8192;
  double beta_fast = 32.0, beta_slow = 1.0;  ///< yarn
  bool truncate = true;                      ///< yarn: the ramp's ends are rounded to whole dimensions
  /// longrope: divisors of the frequencies, [rotary_dim / 2]; fit_to_length() selects the list.
  std::vector<double> short_divisors = {}, long_divisors = {};
  bool long_context = false;
  double attention_factor = 1.0;  ///< multiplies cos and sin
};

enum class NormKind : uint8_t {
  rms,           ///< w * x / rms(x)
  rms_plus_one,  ///< (1 + w) * x / rms(x)
  layer,         ///< LayerNorm with weight and bias
};

/// Placement of a block's norms.
enum class NormPlacement : uint8_t {
  pre,       ///< x += f(norm(x))
  post,      ///< x += norm(f(x))
  sandwich,  ///< x += norm(f(norm(x)))
  residual,  ///< x = norm(x + f(x)), as BERT
};

enum class QkNorm : uint8_t {
  none,
  head,          ///< over each head of Q and K, one weight [D], before RoPE
  row,           ///< over all heads of a row jointly, weight [heads * D], before RoPE
  l2_after_rope  ///< x / rms(x) over each head, no weight, after RoPE and only in layers that rotate
};

/// Per-layer settings of a decoder.
struct LayerConfig {
  int window = 0;    ///< keys that a query sees, its own included; 0 = all
  int chunk = 0;     ///< a query sees the keys of its own chunk of positions only; 0 = off
  int rope = 0;      ///< index into ModelConfig::ropes; -1 = no rotation
  bool moe = false;  ///< experts instead of the dense MLP
  /// Experts beside the dense MLP, with the same input; the next layer adds what they give to its MLP's
  /// output (LongCat-Flash).
  bool shortcut = false;
};

/// Tensor names and layouts of experts in a family's checkpoints; E experts, H hidden, I intermediate.
enum class MoeLayout : uint8_t {
  mixtral,   ///< block_sparse_moe.experts.N.{w1,w3,w2}, or mlp.experts.{gate_up_proj [E,2I,H], down_proj
             ///< [E,H,I]}
  qwen3,     ///< mlp.experts.N.{gate,up,down}_proj, or fused as Mixtral's
  gpt_oss,   ///< mlp.experts.{gate_up_proj [E,H,2I] (gate even, up odd), down_proj [E,I,H]}, or as MXFP4
             ///< blocks; router and experts have biases
  llama4,    ///< feed_forward.experts.{gate_up_proj [E,H,2I] (gate, then up), down_proj [E,I,H]}
  deepseek,  ///< as Qwen3's; the shared experts are mlp.shared_experts, one MLP
  longcat,   ///< as Qwen3's; the router is mlp.router.classifier
};

struct MoeConfig {
  int num_experts = 0;  ///< 0 = no layer has experts
  /// Further choices of the router, after the experts, whose output is their input.
  int identity_experts = 0;
  int experts_per_token = 0;
  int intermediate_size = 0;         ///< of one expert
  int shared_intermediate_size = 0;  ///< of the shared expert; 0 = none
  MoeRouter router = MoeRouter::softmax_then_top;
  MoeLayout layout = MoeLayout::mixtral;
  bool renormalize = true;    ///< {softmax,sigmoid}_then_top: the k weights are divided by their sum
  float routed_scale = 1.0f;  ///< multiplies the k weights, but not the shared expert
  /// The choice among groups of consecutive experts, as RouteRule has it.
  int groups = 1, top_groups = 1, group_best = 1;
  /// A tensor e_score_correction_bias [choices()] of the router is added to the scores for the choice alone.
  bool choice_bias = false;
  /// gpt-oss: gate = min(gate, limit), up = clamp(up, -limit, limit), (up + 1) * gate * sigmoid(1.702 gate).
  /// 0 = the ordinary gated activation.
  float swiglu_limit = 0.0f;
  bool mxfp4 = false;  ///< the checkpoint's experts are MXFP4 blocks

  int choices() const { return num_experts + identity_experts; }  ///< of the router
};

/// Multi-head latent attention. A token's cache is one record for all heads: a normed latent row, and a
/// rotated key part. Attention runs in the absorbed form: the up-projection of keys is applied to the queries
/// and that of values to the result, so that a head's query has kv_rank + rope_dim elements, and its result
/// kv_rank.
struct MlaConfig {
  int kv_rank = 0;   ///< of the latent; 0 = the model has other attention
  int q_rank = 0;    ///< of the queries' own latent; 0 = none: they are projected from the hidden state
  int nope_dim = 0;  ///< of a head's queries and keys, without rotation
  int rope_dim = 0;  ///< and with; the keys' are common to all heads
  int v_dim = 0;     ///< of a head's values
  /// Factors of the normed latents (LongCat-Flash), which their norms' weights take when they are read.
  float q_scale = 1.0f, kv_scale = 1.0f;
  /// Prefill without absorption: positions whose keys and values are expanded at a time. 0 = it is absorbed,
  /// as decode always is. Set by the engine, before the weights are read.
  int expanded_keys = 0;

  explicit operator bool() const { return kv_rank > 0; }
  int qk_dim() const { return nope_dim + rope_dim; }
  int record() const { return kv_rank + rope_dim; }
  bool operator==(const MlaConfig&) const = default;
};

/// DeepSeek sparse attention: in each layer an indexer, or that of an earlier layer, chooses the keys that a
/// query sees.
struct IndexerConfig {
  int heads = 0;             ///< 0 = the model has none
  int dim = 0;               ///< of its queries and its one key a token
  bool interleaved = false;  ///< RoPE of the first elements, as RopeConfig::interleaved
  std::vector<bool> full;    ///< [num_layers]; false: the layer sees the keys of the last one with an indexer
};

/// The encoder of an encoder-decoder model; an encoder-only model uses the fields of ModelConfig.
struct EncoderConfig {
  int num_layers = 0;
  int num_heads = 0;
  int intermediate_size = 0;
  int max_position = 0;  ///< of its output: tokens, or frames after the convolutions
  int mel_bins = 0;      ///< > 0: the input is audio (Whisper), [frames, mel_bins]
};

/// Forced and suppressed tokens of an encoder-decoder model, as transformers' generate() reads them from
/// config.json and generation_config.json, which takes precedence.
struct DecoderForcing {
  std::optional<int32_t> first;     ///< forced_bos_token_id: right after decoder_start_token_id
  std::optional<int32_t> last;      ///< forced_eos_token_id: at the last position that max_tokens allows
  std::vector<int32_t> suppressed;  ///< suppress_tokens: never sampled
  std::vector<int32_t> suppressed_first;  ///< begin_suppress_tokens: not sampled as the first token
  /// forced_decoder_ids (older Whisper): positions in the decoder's input, from 1, and their tokens.
  std::vector<std::pair<int, int32_t>> prompt;
  int min_length = 0;             ///< in decoder tokens, prompt included: no end token before it
  std::optional<int> max_length;  ///< likewise: the maximum length
};

struct ModelConfig {
  std::string architecture;  ///< "LlamaForCausalLM", ...
  std::string model_type;
  ModelKind kind = ModelKind::decoder;
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;  ///< of the dense MLP
  int num_layers = 0;         ///< of the decoder, or of an encoder-only model
  int extra_layers = 0;  ///< further ones that a checkpoint has for predicting more than one token; not run
  int num_heads = 0;
  int num_kv_heads = 0;  ///< with mla: 1
  int head_dim = 0;      ///< with mla: that of the absorbed form, mla.record()
  int64_t max_position = 0;
  bool tie_word_embeddings = false;
  DType dtype = DType::f32;
  WeightQuantization quantization;
  bool has_kv_scales = false;  ///< quantization_config declares fp8 KV cache scales in the checkpoint

  NormKind norm = NormKind::rms;
  NormPlacement norm_placement = NormPlacement::pre;
  float norm_eps = 1e-6f;
  QkNorm qk_norm = QkNorm::none;
  Activation activation = Activation::silu;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool sinks = false;              ///< a learned sink logit for each head (gpt-oss)
  double attention_scale = 0.0;    ///< multiplies q.k; 0 = 1 / sqrt(head_dim), or of mla.qk_dim()
  float attention_softcap = 0.0f;  ///< cap * tanh(score / cap); 0 = off
  float embedding_scale = 1.0f;    ///< multiplies embedding rows (Gemma: rounded to the model's dtype)

  std::vector<RopeConfig> ropes;    ///< empty = no rotary positions at all
  std::vector<LayerConfig> layers;  ///< [num_layers]
  MoeConfig moe;
  MlaConfig mla;
  int sparse_topk = 0;  ///< DeepSeek sparse attention: keys that an indexer chooses for a query; 0 = all
  bool sparse = false;  ///< sequences may be longer than sparse_topk; else attention is dense (fit_to_length)
  std::optional<EncoderConfig> encoder;
  int position_offset = 0;  ///< learned positions: rows of the table before position 0 (RoBERTa, BART)

  /// Settings that only this family has, in a type of its own (such as GraniteSettings): written by its
  /// configure(), read by its read() through family_settings(). Empty = none.
  std::any family;

  std::optional<int32_t> bos_token_id;
  /// Encoder-decoder models: the first token of the decoder's input, from config.json or
  /// generation_config.json.
  std::optional<int32_t> decoder_start_token_id;
  DecoderForcing forcing;
  std::vector<int32_t> eos_token_ids;  ///< union of config.json and generation_config.json

  /// Sampling defaults of generation_config.json, where given.
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k, max_new_tokens;
  std::optional<bool> do_sample;

  IndexerConfig indexer;  ///< where sparse_topk is not 0
};

/// `config`'s own settings of type T; T's defaults if it is another family's.
template <class T>
T family_settings(const ModelConfig& config) {
  const T* own = std::any_cast<T>(&config.family);
  return own ? *own : T{};
}

/// Reads DIR/config.json and the generation config: "auto" = DIR/generation_config.json if it exists
/// (otherwise, for an encoder-decoder model, the same keys of config.json), "vllm" or "none" = none, anything
/// else = a folder that has one, or the file itself. Unknown architectures, missing keys and numbers out of
/// range are errors that name the file, the key, the value and what is allowed.
Result<ModelConfig> load_model_config(const std::string& dir, const std::string& generation_config = "auto");

/// The same from the files' text; `generation` is empty when there is none. `dir` and `generation_file` ("" =
/// in `dir`) are for messages.
Result<ModelConfig> parse_model_config(std::string_view config, std::string_view generation,
                                       const std::string& dir, const std::string& generation_file = "");

/// Sets what depends on the maximum sequence length: sparse attention is dense up to sparse_topk keys, and
/// longrope uses its long factors for every sequence if
/// that length exceeds the original context, else its short ones. (Choosing by each sequence's current length
/// would invalidate cached keys.) Parsing assumes max_position.
void fit_to_length(ModelConfig& config, int64_t max_seq_len);

/// Why the engine does not run sequences of the length that the config fits on a GPU, and what to change; ""
/// = it does.
std::string length_refusal(const ModelConfig& config);

}  // namespace fovea
