#pragma once
// The engine: requests in, tokens out. One thread owns all scheduler state; the offline commands and a server
// use the same one. src/engine/README.md is its contract.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention.h"
#include "fovea/dtype.h"
#include "fovea/engine_stats.h"
#include "fovea/load_progress.h"
#include "fovea/lora.h"
#include "fovea/machine_floor.h"
#include "fovea/result.h"
#include "fovea/speculative.h"

namespace fovea {

/// Scheduling order: fcfs = arrival order; priority = lowest GenerateRequest::priority
/// first, arrival order among equals.
enum class SchedulingPolicy : uint8_t { fcfs, priority };
std::string_view to_string(SchedulingPolicy policy);
/// "fcfs" or "priority" (vLLM's words), in any letter case.
std::optional<SchedulingPolicy> parse_scheduling_policy(std::string_view name);

struct EngineConfig {
  std::string model;  ///< a directory in Hugging Face format, or a hub id found in the local cache
  /// Where the model runs: the CPU or an NVIDIA GPU, see find_device().
  DeviceInfo device = {};
  int device_index = 0;  ///< of a GPU, as CUDA counts them
  std::optional<DType> dtype;
  KvCacheDType kv_cache_dtype = KvCacheDType::auto_;
  KvLayout kv_layout = KvLayout::auto_;
  AttentionConfig attention;
  /// The backends to choose from, including the caller's own (BackendRegistry::add); null =
  /// builtin_backends(). It and the BackendInfo of its rows must outlive the engine.
  const BackendRegistry* registry = nullptr;
  /// Files of backends that are built outside of Fovea (fovea/backend_library.h), added to `registry`.
  std::vector<std::string> backend_libraries;
  std::optional<int> max_running_requests;  ///< nullopt = 64, on a GPU 256
  /// Tokens of one step: the chunk of a prefill. nullopt = 512, on a GPU 8192.
  std::optional<int> max_batched_tokens;
  std::optional<int> max_seq_len;    ///< overrides the model's context length
  std::optional<int64_t> num_pages;  ///< of the KV cache; nullopt = what the memory holds
  /// On a CPU: the KV cache's share of the memory that is free after the weights are loaded.
  double memory_share = 0.5;
  /// On a GPU: the share of its memory that all programs together may take, this engine's KV cache included.
  double gpu_memory_utilization = 0.9;
  // On a GPU. None of these changes an answer's bits.
  bool overlap = true;                   ///< a step is scheduled and queued while the one before runs
  bool cuda_graphs = true;               ///< decode steps run as CUDA graphs
  std::optional<int> cuda_graph_max_bs;  ///< requests of the largest graph; nullopt = 256
  std::vector<int> cuda_graph_bs;        ///< requests of each graph; empty = 1, 2, 4, 8, 16, 24, ...
  bool prefix_cache = true;
  SpeculativeConfig speculative;
  SchedulingPolicy scheduling_policy = SchedulingPolicy::fcfs;
  int threads = 0;    ///< 0 = one per usable CPU
  uint64_t seed = 0;  ///< for requests without a seed, and for dummy weights
  bool dummy_weights = false;
  /// Source of request defaults: "auto" = the model's generation_config.json if it has one, "vllm" or "none"
  /// = the file is ignored (its end tokens too), else the path of such a file or of a directory that has one.
  std::string generation_config = "auto";
  int max_logprobs = 20;           ///< maximum of a request's `logprobs` and `prompt_logprobs`; -1 = no limit
  std::string chat_template;       ///< a file or the text itself, instead of the model's; "" = the model's
  std::string chat_template_name;  ///< one of the model's templates; "" = chosen for each request
  LoraConfig lora;                 ///< decoders only
  LoadProgress load_progress;      ///< of the weights; may be null
  /// Called with lines about a GPU's memory: what the engine will take, part by part, before any of it is
  /// allocated, and what it has taken at the end; null = they are logged.
  std::function<void(const std::string& line)> report;
};

/// Maximum answers to one prompt (OpenAI's limit); each is a separate sequence.
inline constexpr int kMaxChoices = 128;

/// A number added to the logit of one token.
struct LogitBias {
  int32_t token_id = 0;
  float bias = 0;  ///< -100 to 100
  bool operator==(const LogitBias&) const = default;
};

/// What the text of an answer must be. Tokens that can't lead there are not sampled, and the answer ends when
/// nothing can follow; an end token is sampled only where the text so far is one that is allowed.
struct OutputConstraint {
  enum class Kind : uint8_t {
    json_object,     ///< any JSON object
    json_schema,     ///< JSON that a schema allows; text = the schema
    regex,           ///< text = a regular expression that matches all of the answer
    choice,          ///< one of `choices`
    grammar,         ///< text = a grammar, GBNF (llama.cpp's form) or Lark
    structural_tag,  ///< text = JSON: free text with structured parts between tags, vLLM's form
  };
  Kind kind = Kind::json_object;
  std::string text;
  std::vector<std::string> choices;
  /// JSON: a regular expression for the white space between tokens; nullopt = a blank, or a line end and an
  /// indentation.
  std::optional<std::string> white_space;
  bool strict = false;  ///< JSON: objects without additionalProperties have no others
  /// The answer is free up to the end of these texts, which come one after the other, and then as above: the
  /// end of a model's reasoning. Empty = all of it is as above. The answer does not end before, unless
  /// `may_end_before`.
  std::vector<std::string> after;
  bool may_end_before = false;  ///< a call of a tool may end the free part, and the answer with it
  /// The free part is there only if the answer begins with this text, behind white space; "" = it always is.
  std::string after_begin;
  /// Instead of the above, one of these texts may come, and then the answer is free: calls of tools.
  std::vector<std::string> instead;
  /// What error messages call it: the field of a request. "" = they begin with what is wrong.
  std::string name;
};

/// The rules of Whisper's decoding with timestamps, ids from `first` on: the answer begins with one; they
/// come in pairs (the end of a segment and the beginning of the next), except directly before the end token;
/// they do not decrease, and a segment is not empty; and where all timestamps together are more probable than
/// every other token, one of them is sampled.
struct TimestampRules {
  int32_t first = 0;         ///< the token of time 0
  int32_t text_end = 0;      ///< ids below it are text: the end token's
  int32_t off = 0;           ///< <|notimestamps|>, never sampled
  int32_t most_initial = 0;  ///< the answer begins with a timestamp of at most first + most_initial
  bool operator==(const TimestampRules&) const = default;
};

/// Names, meanings and limits are vLLM's. Logits are processed in this order: allowed_token_ids, bad_words,
/// min_tokens, logit_bias, the penalties, timestamps, temperature, min_p, top_k, top_p.
struct SamplingParams {
  float temperature = 1.0f;  ///< below 1e-5 = greedy: the true argmax, lowest id on a tie
  int top_k = 0;             ///< 0 or -1 = off
  float top_p = 1.0f;
  float min_p = 0.0f;
  /// Positive logits of tokens of the prompt and the answer are divided by it, others multiplied; above 0,
  /// 1 = off.
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;     ///< times the token's count in the answer, subtracted; -2 to 2
  float presence_penalty = 0.0f;      ///< subtracted once from tokens of the answer; -2 to 2
  std::vector<LogitBias> logit_bias;  ///< at most 1024, each token once
  /// The only tokens that may be sampled; nullopt = all. An end token ends the answer only if it is listed.
  std::optional<std::vector<int32_t>> allowed_token_ids;
  /// Texts whose token sequence the answer must not complete, as given and with a leading space.
  std::vector<std::string> bad_words;
  std::optional<uint64_t> seed;
  int n = 1;  ///< answers to the prompt, up to kMaxChoices; more than 1 only with a temperature
  std::optional<int> max_tokens;  ///< nullopt = up to the context length
  int min_tokens = 0;             ///< no end token is sampled and no stop string is matched before these
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool include_stop_str_in_output = false;
  /// How many of the most probable tokens to report with each token of the answer: 0 = that token's log
  /// probability only, -1 = all, nullopt = nothing. From the model's distribution, before any of the above.
  std::optional<int> logprobs;
  /// Needs a tokenizer. Applied before all other changes of the logits. Null = any text.
  std::shared_ptr<const OutputConstraint> constraint;
  std::optional<TimestampRules> timestamps;  ///< of Whisper
};

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;  ///< natural logarithm; -inf for a token that the model excludes
  int rank = 0;       ///< from 1, in descending order of the logit, lower ids first on a tie
  bool operator==(const TokenLogprob&) const = default;
};

/// A token's log probability, and the most probable tokens in its place, best first.
struct TokenLogprobs {
  TokenLogprob token;
  std::vector<TokenLogprob> top;
  bool operator==(const TokenLogprobs&) const = default;
};

struct GenerateRequest {
  std::vector<int32_t> prompt_ids;  ///< encoder-decoder models: the decoder's; empty = its start token
  /// Encoder input of an encoder-decoder model: token ids, or log-mel frames [frames, mel_bins], row-major.
  std::vector<int32_t> encoder_ids;
  std::vector<float> encoder_features;
  int priority = 0;  ///< lower = sooner; values other than 0 need SchedulingPolicy::priority
  /// Any name of the client: under overload, clients get equal shares of the computation. Answers do not
  /// depend on it.
  std::string client;
  /// Prefixes in the cache, and earlier answers that suffix drafts follow, are shared with requests of the
  /// same salt alone.
  std::string cache_salt;
  /// Called once, like a sink, when the first step of the first answer begins: the request has left the
  /// queue.
  std::function<void()> on_start;
  SamplingParams sampling;
  /// As SamplingParams::logprobs, for each prompt token after the first, given the tokens before it.
  std::optional<int> prompt_logprobs;
  bool last_logits = false;  ///< return the full logits row of the last prompt token
  std::string lora;          ///< the name of a loaded adapter; "" = none
};

enum class FinishReason { none, stop, length, cancelled, error };
std::string_view to_string(FinishReason reason);

/// What a request produced since its last output. Sinks are called on the engine's thread and must be short.
struct RequestOutput {
  uint64_t id = 0;
  int index = 0;                        ///< which of the n answers
  std::string text;                     ///< new text; never a partial UTF-8 character
  std::vector<int32_t> token_ids;       ///< new ids (without the end token unless ignore_eos)
  std::vector<TokenLogprobs> logprobs;  ///< of token_ids, if requested
  FinishReason finish = FinishReason::none;
  std::string stop_reason;            ///< the stop string or end token that ended it
  std::optional<int32_t> stop_token;  ///< the id, if an end token ended it
  Error error;                        ///< when finish == error
  int prompt_tokens = 0;
  int cached_tokens = 0;                       ///< prompt tokens found in the prefix cache
  int completion_tokens = 0;                   ///< so far
  std::vector<TokenLogprobs> prompt_logprobs;  ///< in the last output of answer 0, if requested
  std::vector<float> last_logits;              ///< likewise
  SpeculativeCounts speculative;               ///< in the last output of each answer
  /// Seconds from submit() to the answer's first step (or to its end, if it had none), from there to the
  /// sampling of its first token, and from there to this output.
  double queue_seconds = 0, prefill_seconds = 0, decode_seconds = 0;
};
using OutputSink = std::function<void(const RequestOutput&)>;

/// A part of the memory that an engine takes on its GPU.
struct MemoryPart {
  std::string name;
  int64_t bytes = 0;
};

/// The resolved configuration, for display and logs.
struct EngineInfo {
  std::string model_dir, architecture;
  DType dtype = DType::f32;
  KvCacheDType kv_dtype = KvCacheDType::auto_;  ///< resolved: never auto
  KvLayout kv_layout = KvLayout::auto_;         ///< likewise
  int64_t weight_bytes = 0, weight_bytes_per_token = 0, kv_bytes = 0, kv_bytes_per_token = 0;
  int64_t workspace_bytes = 0;  ///< of a step: activations, logits, attention workspace
  int64_t kv_tokens = 0;        ///< KV cache capacity
  double kv_sequences = 0;      ///< sequences of maximum length that the KV cache holds at once
  bool prefix_cache = false;    ///< resolved: off for encoder-decoder models
  int max_seq_len = 0, vocab_size = 0, threads = 0;
  int max_running_requests = 0, max_batched_tokens = 0;
  std::string device_name;             ///< "cpu", or "cuda:0"
  std::vector<MemoryPart> gpu_memory;  ///< what the engine takes on its GPU; empty on a CPU
  int64_t gpu_memory_surplus = 0;      ///< what the start has taken beyond the sum of gpu_memory
  int64_t gpu_memory_total = 0;        ///< bytes of the GPU
  std::vector<int> cuda_graph_bs;      ///< requests of each graph; empty = none
  bool overlap = false;
  Selection selection;               ///< a backend for each phase of each kind of layers
  std::vector<AttentionSpec> specs;  ///< the distinct attentions of the model
  std::string rope_choice;           ///< the longrope factors in use and why; empty for other models
};

/// A conversation for the model's chat template; lists and objects are JSON text.
struct ChatRequest {
  /// A list of objects, each with a string "role". Other members ("content" as text or as a list of parts,
  /// "tool_calls", "name", "reasoning_content", ...) are interpreted by the template.
  std::string messages;
  std::string tools;            ///< a list of objects; "" = none
  std::string documents;        ///< a list of objects; "" = none
  std::string template_kwargs;  ///< an object with further variables (enable_thinking, ...); "" = none
  /// "" = EngineConfig::chat_template_name, else "tool_use" where there are tools and it exists, else
  /// "default".
  std::string template_name;
  bool add_generation_prompt = true;
  /// The prompt ends inside the last message, so that the model continues it.
  bool continue_final_message = false;
};

/// A text's ids if it is within the limit; else `ids` is empty, and the text has at least `at_least` tokens.
struct BoundedTokens {
  std::vector<int32_t> ids;
  size_t at_least = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;

  /// Selects the backends first (a refusal costs nothing), then reads the weights and sizes the KV cache.
  static Result<std::unique_ptr<Engine>> create(const EngineConfig& config);

  virtual const EngineInfo& info() const = 0;
  virtual EngineStats stats() const = 0;
  /// A live view. Snapshots are taken between steps, and only for kSnapshotInterest after a call of this
  /// function. Returns the newest one, at most kSnapshotPeriod or one step old. If there is no recent one,
  /// the call waits at most kSnapshotPatience and then returns an older one. Thread-safe, but must not be
  /// called from sinks.
  virtual EngineSnapshot snapshot() const = 0;
  /// Measures the machine with as many threads as the engine has. Takes 20 to 100 ms, and 64 MiB meanwhile.
  /// Call it while no request runs: the measurement and requests slow each other down. Fails if there is not
  /// enough memory or threads cannot be created.
  virtual Result<MachineFloor> measure_floor() const = 0;

  /// Why the engine serves nothing any more: its GPU has failed, or stands still. All requests have ended
  /// with this error, and submit() refuses others. nullopt while it works. Thread-safe.
  virtual std::optional<Error> failure() const = 0;

  /// Queues a request; refuses one that can never run (empty, too long, bad parameters). Each of its
  /// sampling.n answers gets separate outputs, the last with a finish reason. Thread-safe.
  virtual Result<uint64_t> submit(GenerateRequest request, OutputSink sink) = 0;
  /// Whether submit() would accept `request`. Thread-safe.
  virtual Status check(const GenerateRequest& request) const = 0;
  /// Ends a request within one step; its sink gets a last output with FinishReason::cancelled for each
  /// unfinished answer. Thread-safe.
  virtual void cancel(uint64_t id) = 0;
  /// Blocks until nothing is running or waiting.
  virtual void wait_idle() = 0;

  virtual Result<std::vector<int32_t>> tokenize(std::string_view text, bool add_special_tokens) const = 0;
  /// For a text limited to `most` tokens: the cost of a longer text does not grow with its tokens, and in
  /// most cases its length alone shows that it is too long.
  virtual Result<BoundedTokens> tokenize(std::string_view text, bool add_special_tokens,
                                         size_t most) const = 0;
  virtual std::string detokenize(const std::vector<int32_t>& ids, bool skip_special_tokens) const = 0;
  /// The bytes of one token, possibly part of a character; "" when unknown.
  virtual std::string token_bytes(int32_t id) const = 0;
  virtual bool has_chat_template() const = 0;
  /// The prompt of a conversation, ready to tokenise with add_special_tokens = false.
  virtual Result<std::string> apply_chat_template(const ChatRequest& request) const = 0;
  /// Request defaults: generation_config.json over the library's.
  virtual SamplingParams default_sampling() const = 0;

  /// The loaded adapters, sorted by name. This and the next two functions are thread-safe.
  virtual std::vector<LoraInfo> loras() const { return {}; }
  /// Reads an adapter, for requests that are submitted afterwards. Errors: not LoraConfig::on(), its name is
  /// in use or empty, too many are loaded, or its files don't fit the model.
  virtual Status load_lora(const LoraModule&) { return unsupported("the engine takes no LoRA adapters"); }
  /// Requests that have been submitted finish with it; its memory is freed after the last one. An unknown
  /// name is an error.
  virtual Status unload_lora(const std::string&) { return unsupported("the engine takes no LoRA adapters"); }
};

struct EngineDevice {
  DeviceInfo info;
  int index = 0;
};

/// The device of a name: "auto" = the first GPU if the build and the machine have one, else the CPU; "cpu";
/// "cuda" = "cuda:0"; "cuda:N". Errors: another name; a GPU that is not there or too old, a driver that is
/// not there or too old, a build without CUDA.
Result<EngineDevice> find_device(std::string_view name);

/// As Engine::apply_chat_template, without an engine: reads only the model's tokenizer and templates.
Result<std::string> render_chat_prompt(const EngineConfig& config, const ChatRequest& request);

}  // namespace fovea
