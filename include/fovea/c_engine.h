/* The C ABI of Fovea's engine: requests in, tokens out, for programs in any language; and of its embedder.
 * Version, errors and sized structs are fovea/c_api.h's.
 *
 * Handles are checked: null, destroyed and invented ones are FOVEA_INVALID_ARGUMENT, and so is one that was
 * created before a fork() in the child, which has none of the engine's threads. All functions are
 * thread-safe; one engine may be used by any number of threads. Nothing calls back into the program: outputs
 * are queued until fovea_engine_poll() takes them. Text is UTF-8.
 */
#ifndef FOVEA_C_ENGINE_H_
#define FOVEA_C_ENGINE_H_

#include "fovea/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fovea_engine fovea_engine;
typedef struct fovea_embedder fovea_embedder;

enum { FOVEA_MODEL_DECODER = 0, FOVEA_MODEL_ENCODER = 1, FOVEA_MODEL_ENCODER_DECODER = 2 };
/* What `model` (a folder in Hugging Face format, or a hub id found in the local cache) is: an encoder is for
 * fovea_embedder_create(), the others are for fovea_engine_create(). */
FOVEA_API fovea_status fovea_model_kind(const char* model, int32_t* kind);

/* Memory that a function below returned to be freed by the program. Null is allowed. */
FOVEA_API void fovea_free(void* memory);

/* Loads a model and starts its thread. `options`: a JSON object; all except "model" may be absent or null. An
 * unknown key is refused with the list of keys. Keys are the flags of `fovea generate` with _ for -:
 *   "model"                    a folder or a hub id
 *   "device"                   "auto", "cpu", "cuda", "cuda:1"
 *   "dtype"                    "auto", "float32", "bfloat16", "float16"
 *   "kv_cache_dtype", "kv_layout", "page_size", "num_pages", "memory_share", "allow_page_override"
 *   "attention_backend", "prefill_attention_backend", "decode_attention_backend", "batch_invariant"
 *   "attention_config"         an object of --attention-config's keys
 *   "backend_library"          a list of files, as fovea_load_backend() takes them
 *   "max_num_seqs", "max_num_batched_tokens", "max_model_len", "enable_prefix_caching", "scheduling_policy"
 *   "threads", "seed", "dummy_weights", "generation_config", "max_logprobs"
 *   "speculative_config"       an object of --speculative-config's keys; answers do not depend on it
 *   "chat_template"            a file or the template's text
 *   "chat_template_name"
 *   "enable_lora"              true: LoRA adapters may be loaded (fovea_engine_load_lora)
 *   "lora_modules"             an object of adapters to load: {"name": "path"}
 *   "max_lora_rank", "max_loras", "max_cpu_loras"
 * The environment variables of docs/configuration.md about attention apply where no key contradicts. */
FOVEA_API fovea_status fovea_engine_create(const char* options, fovea_engine** out);
/* Ends all requests: calls of other threads on the engine return, fovea_engine_poll() with FOVEA_CANCELLED.
 * Batches that were polled stay valid. Null is allowed, and an unknown handle has no effect. */
FOVEA_API void fovea_engine_destroy(fovea_engine* engine);

/* The resolved configuration, one JSON object: model_dir, architecture, device, dtype, kv_cache_dtype, sizes,
 * max_model_len, vocab_size, has_chat_template, attention (a list of {kind, prefill, decode}), explain (text,
 * why these backends), default_sampling. *json is the program's to free with fovea_free(). */
FOVEA_API fovea_status fovea_engine_info_json(fovea_engine* engine, char** json);
/* Counters since the start, one JSON object; as above. "speculative": drafts (steps that verified some),
 * draft_tokens, accepted_tokens, accepted_by_position, mean_acceptance_length. */
FOVEA_API fovea_status fovea_engine_stats_json(fovea_engine* engine, char** json);

/* *ids and *text are the program's to free with fovea_free(); never null on success. *text ends with a NUL
 * that *bytes does not count. `bytes` of the text to tokenize; -1 = up to its NUL. */
FOVEA_API fovea_status fovea_engine_tokenize(fovea_engine* engine, const char* text, int64_t bytes,
                                             int32_t add_special_tokens, int32_t** ids, size_t* count);
FOVEA_API fovea_status fovea_engine_detokenize(fovea_engine* engine, const int32_t* ids, size_t count,
                                               int32_t skip_special_tokens, char** text, size_t* bytes);
/* The bytes of one token, possibly part of a character; none for an unknown id. */
FOVEA_API fovea_status fovea_engine_token_bytes(fovea_engine* engine, int32_t id, char** text, size_t* bytes);

/* A conversation for the model's chat template; lists and objects are JSON text. */
typedef struct fovea_chat {
  uint32_t size;
  int32_t continue_final_message; /* 1: the prompt ends inside the last message [0] */
  const char* messages;           /* [{"role": "user", "content": "..."}, ...] */
  const char* tools;              /* a list of objects; null = none, also below */
  const char* documents;
  const char* template_kwargs;  /* an object of further variables: {"enable_thinking": false} */
  const char* template_name;    /* one of the model's templates; null = chosen by whether there are tools */
  int32_t no_generation_prompt; /* 1: the prompt does not open the answer [0] */
  int32_t unused;               /* zero */
} fovea_chat;
/* The conversation's prompt: submit it with fovea_request.raw_text = 1. */
FOVEA_API fovea_status fovea_engine_apply_chat_template(fovea_engine* engine, const fovea_chat* chat,
                                                        char** text, size_t* bytes);

/* Zero it, set `size`, and give either text or ids. Everything is copied. */
typedef struct fovea_request {
  uint32_t size;
  int32_t priority;          /* lower = sooner; other than 0 only with "scheduling_policy": "priority" */
  const char* prompt;        /* text; or null */
  int64_t prompt_bytes;      /* 0 or -1 = up to its NUL */
  const int32_t* prompt_ids; /* encoder-decoder models: the decoder's; none = the model's start tokens */
  size_t num_prompt_ids;
  /* A JSON object with vLLM's SamplingParams by name; null, and absent keys, = the model's defaults. Null as
   * a key's value = off, where vLLM's default is None. An unknown key is refused with the list: temperature,
   * top_p, top_k, min_p, repetition_penalty, frequency_penalty, presence_penalty, logit_bias,
   * allowed_token_ids, bad_words, seed, n, max_tokens (null = up to the end of the context), min_tokens,
   * stop, stop_token_ids, ignore_eos, skip_special_tokens, include_stop_str_in_output, logprobs,
   * prompt_logprobs. */
  const char* sampling;
  const char* client; /* any name: under overload, clients get equal shares; null = "" */
  uint64_t tag;       /* the program's own; outputs have it */
  int32_t raw_text;   /* 1: `prompt` gets no special tokens, as a chat template has put them there [0] */
  int32_t unused;     /* zero */
  const int32_t* encoder_ids; /* encoder-decoder models: the encoder's input, tokens ... */
  size_t num_encoder_ids;
  const float* encoder_features; /* ... or log-mel frames [frames, mel bins], row-major */
  size_t num_encoder_features;   /* numbers, not frames */
  const char* lora;              /* the name of a loaded LoRA adapter; null or "" = none */
} fovea_request;

/* Queues a request, or refuses one that can never run. *id is above 0. Its outputs may be polled before this
 * returns: tell requests apart by `tag` where that matters. */
FOVEA_API fovea_status fovea_engine_submit(fovea_engine* engine, const fovea_request* request, uint64_t* id);
/* Whether fovea_engine_submit() would accept the request. */
FOVEA_API fovea_status fovea_engine_check(fovea_engine* engine, const fovea_request* request);
/* Loads a LoRA adapter in PEFT's format from a folder, or a hub id found in the local cache, for requests
 * that are submitted afterwards; only with "enable_lora" or "lora_modules". A name in use is refused. */
FOVEA_API fovea_status fovea_engine_load_lora(fovea_engine* engine, const char* name, const char* path);
/* Requests that have been submitted finish with it. FOVEA_NOT_FOUND: no adapter has the name. */
FOVEA_API fovea_status fovea_engine_unload_lora(fovea_engine* engine, const char* name);

/* Ends a request within one step; it gets last outputs with FOVEA_FINISH_CANCELLED. No effect if it has
 * ended. FOVEA_NOT_FOUND: an id that submit never returned. */
FOVEA_API fovea_status fovea_engine_cancel(fovea_engine* engine, uint64_t id);

/* These two never change. */
typedef struct fovea_token_logprob {
  int32_t token_id;
  int32_t rank;  /* from 1, in descending order of the logit */
  float logprob; /* natural logarithm; -inf for a token that the model excludes */
} fovea_token_logprob;
typedef struct fovea_token_logprobs {
  fovea_token_logprob token;
  int32_t num_top;
  const fovea_token_logprob* top; /* [num_top], the most probable tokens in its place, best first */
} fovea_token_logprobs;

enum {
  FOVEA_FINISH_NONE = 0,
  FOVEA_FINISH_STOP = 1,
  FOVEA_FINISH_LENGTH = 2,
  FOVEA_FINISH_CANCELLED = 3,
  FOVEA_FINISH_ERROR = 4
};

/* What one answer produced since its last output. Later versions append fields: `size` is the library's. */
typedef struct fovea_output {
  uint32_t size;
  int32_t index; /* which of the request's n answers */
  uint64_t id;
  uint64_t tag;
  const char* text; /* new text; never a part of a character; NUL-terminated, and may contain NUL */
  size_t text_bytes;
  const int32_t* token_ids; /* new ids, without the end token unless ignore_eos */
  size_t num_token_ids;
  const fovea_token_logprobs* logprobs; /* of token_ids, if requested */
  size_t num_logprobs;
  int32_t finish;          /* FOVEA_FINISH_NONE: more outputs of this answer follow */
  int32_t stop_token;      /* the end token that ended it, or -1 */
  const char* stop_string; /* the stop string or the end token's text that ended it, or "" */
  const char* error;       /* one line, when finish is FOVEA_FINISH_ERROR, else "" */
  int32_t error_status;    /* likewise a fovea_status, else FOVEA_OK */
  int32_t prompt_tokens;
  int32_t cached_tokens;                       /* prompt tokens found in the prefix cache */
  int32_t completion_tokens;                   /* so far, an end token included */
  const fovea_token_logprobs* prompt_logprobs; /* of the prompt's tokens from the second one, in the last
                                                  output of answer 0, if requested */
  size_t num_prompt_logprobs;
  double queue_seconds; /* until the answer's first step; prefill: until its first token; decode: until now */
  double prefill_seconds;
  double decode_seconds;
} fovea_output;

/* In the order in which the engine made them. */
typedef struct fovea_outputs {
  uint32_t size;
  uint32_t unused;
  size_t count;
  const fovea_output* const* outputs; /* [count] */
} fovea_outputs;

/* Takes all queued outputs, waiting for the first one up to `timeout_ms` (0 = not at all, -1 = without
 * limit). *out is null when there was none in time, else the program's to free with fovea_outputs_free().
 * Every output goes to one caller. FOVEA_CANCELLED: the engine was destroyed meanwhile. */
FOVEA_API fovea_status fovea_engine_poll(fovea_engine* engine, int64_t timeout_ms, fovea_outputs** out);
FOVEA_API void fovea_outputs_free(fovea_outputs* outputs);
/* Waits until every request has ended, whether or not its outputs were polled. *idle = 0: the time was up. */
FOVEA_API fovea_status fovea_engine_wait(fovea_engine* engine, int64_t timeout_ms, int32_t* idle);

/* Loads an encoder. `options`: as fovea_engine_create(), those of them that are not about generation (model,
 * device, dtype, attention's, max_model_len, max_num_batched_tokens, threads, seed, dummy_weights), and
 * "pooling" ("mean", "cls", "last") and "normalize" (default of both: the model's files). */
FOVEA_API fovea_status fovea_embedder_create(const char* options, fovea_embedder** out);
/* As fovea_engine_destroy(); a running fovea_embedder_embed() is completed. */
FOVEA_API void fovea_embedder_destroy(fovea_embedder* embedder);
/* As fovea_engine_info_json(): model_dir, architecture, dtype, dimensions, max_model_len, vocab_size,
 * threads, pooling, normalize, explain. */
FOVEA_API fovea_status fovea_embedder_info_json(fovea_embedder* embedder, char** json);
/* As fovea_engine_tokenize(), with the special tokens. A text longer than max_model_len is an error; with
 * `truncate` its last tokens are dropped, never the special ones. */
FOVEA_API fovea_status fovea_embedder_tokenize(fovea_embedder* embedder, const char* text, int64_t bytes,
                                               int32_t truncate, int32_t** ids, size_t* count);
/* `ids`: the inputs' tokens, one after the other; `lengths` [count]: tokens of each. `out` [count,
 * dimensions] is written on success only. A vector's bits do not depend on the other inputs. */
FOVEA_API fovea_status fovea_embedder_embed(fovea_embedder* embedder, const int32_t* ids,
                                            const size_t* lengths, size_t count, float* out,
                                            size_t out_floats);

#ifdef __cplusplus
}
#endif
#endif
